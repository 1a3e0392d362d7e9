"""A folder of videos as a run: each file is a segment without arrays, its clip ready, and nothing is trained.

Such a run has ``clips`` as its ``env.id``; a segment's ``source`` is ``clip:`` and the name of its file, its digest
that of the file's bytes. So a file that has changed is another clip, and one that was renamed is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import sqlalchemy as sa

from prefrl.errors import ConfigError
from prefrl.store.again import close_run_out
from prefrl.store.comparisons import n_counted
from prefrl.store.engine import Database
from prefrl.store.records import insert_or_ignore
from prefrl.store.runs import Run
from prefrl.store.schema import OPEN, clip, comparison, query, run, segment
from prefrl.store.states import GONE, RAN_OUT, UNLEASED

CLIPS = "clips"  # env.id of a run that is a folder of videos
PREFIX = "clip:"
SHORT = 6  # hexadecimal digits of a digest that tell two files of one name apart

Pair = tuple[int, int]


@dataclass(frozen=True)
class StoredClip:
    """A video of a run: its segment's row id, the name of its file, and the sha256 of its bytes."""

    id: int
    name: str
    digest: str


def is_clips(one: Run) -> bool:
    """Whether a run is a folder of videos."""
    env = one.config.get("env")
    return isinstance(env, dict) and env.get("id") == CLIPS


def folder_of(one: Run) -> str:
    """Where the videos of such a run were found."""
    return str(one.config["env"].get("kwargs", {}).get("folder", ""))


def refuse_clips(one: Run, what: str) -> None:
    """Refuse what only a run that trains can do.

    Raises:
        ConfigError: The run is a folder of videos; says what to type instead.
    """
    if is_clips(one):
        name, folder = quote(one.name), quote(folder_of(one))
        raise ConfigError(
            f"run {one.name!r} is a folder of clips, which people compare; it trains nothing, so there is nothing to "
            f"{what}: `prefrl label --clips {folder} --name {name}` goes on with it, `prefrl status {name}` shows "
            "the result"
        )


def add_clip(
    db: Database, run_id: int, name: str, digest: str, n_frames: int, video: bytes, detail: dict[str, Any]
) -> bool:
    """Stores a video as a segment with its clip, in one transaction.

    Args:
        db: The database of the run.
        run_id: The run.
        name: Of the file.
        digest: sha256 of its bytes.
        n_frames: How many pictures it has.
        video: Its bytes.
        detail: What else is worth knowing, as plain JSON values.

    Returns:
        False where the run has this content already; then nothing changes.
    """
    row = {"run_id": run_id, "digest": digest, "n_steps": n_frames, "source": f"{PREFIX}{name}"}
    zero = dict.fromkeys(("env_index", "episode", "start", "env_steps"), 0)
    with db.write() as connection:
        new = insert_or_ignore(connection, segment).values(**row, **zero).returning(segment.c.id)
        id_ = connection.execute(new).scalar()
        if id_ is not None:
            ready = {"segment_id": id_, "state": "ready", "video": video, "detail": detail}
            connection.execute(sa.insert(clip).values(**ready))
    return id_ is not None


def rename_clip(db: Database, id_: int, name: str) -> None:
    """Notes that a file has another name now."""
    with db.write() as connection:
        connection.execute(sa.update(segment).where(segment.c.id == id_).values(source=f"{PREFIX}{name}"))


def stored_clips(db: Database, run_id: int) -> list[StoredClip]:
    """All videos that a run ever had, in the order in which they came."""
    mine = sa.select(segment.c.id, segment.c.source, segment.c.digest).where(segment.c.run_id == run_id)
    with db.read() as connection:
        rows = connection.execute(mine.where(segment.c.source.startswith(PREFIX)).order_by(segment.c.id)).all()
    return [StoredClip(id_, source.removeprefix(PREFIX), digest) for id_, source, digest in rows]


def clip_names(db: Database, run_id: int) -> dict[int, str]:
    """Segment row id to the name of its file; where two had one name, with the first digits of their sha256."""
    stored = stored_clips(db, run_id)
    times = Counter(one.name for one in stored)
    return {one.id: one.name if times[one.name] == 1 else f"{one.name} ({one.digest[:SHORT]})" for one in stored}


def ask(
    db: Database, run_id: int, ids: Sequence[int], budget: int, draw: Callable[[set[Pair], int], list[Pair]], anew: bool
) -> int:
    """Proposes as many pairs as the budget lacks, in one transaction.

    Pairs in nobody's hands that show a video that is no longer there are withdrawn first.

    Args:
        db: The database of the run.
        run_id: The run.
        ids: The videos that are there.
        budget: How many comparisons are wanted.
        draw: Given all pairs that are open or were answered, smaller id first, and a number, gives so many others.
        anew: Withdraw every pair in nobody's hands, for what is there or wanted has changed.

    Returns:
        How many were proposed.
    """
    counted = n_counted(db, run_id)
    mine = query.c.run_id == run_id
    with db.write() as connection:
        # one at a time: of two that open the same folder, the second sees the pairs of the first
        connection.execute(sa.select(run.c.id).where(run.c.id == run_id).with_for_update())
        close_run_out(connection, run_id)
        gone = [side.not_in(ids) for side in (query.c.segment_1, query.c.segment_2)]
        unheld = sa.or_(query.c.state.in_(("proposed", "skipped")), RAN_OUT)
        old = sa.update(query).where(mine, unheld, sa.true() if anew else sa.or_(*gone))
        connection.execute(old.values(**GONE, **UNLEASED))
        waiting = _pairs(connection, query, mine, OPEN)
        known = set(waiting) | set(_pairs(connection, comparison, comparison.c.run_id == run_id))
        pairs = draw(known, max(0, budget - counted - len(waiting)))
        same = {"run_id": run_id, "state": "proposed", "purpose": "train", "reward_version": 0, "env_steps": 0}
        rows = [{**same, "segment_1": one, "segment_2": two} for one, two in pairs]
        if rows:
            connection.execute(sa.insert(query), rows)
    return len(rows)


def _pairs(connection: sa.Connection, table: sa.Table, *where: Any) -> list[Pair]:
    rows = connection.execute(sa.select(table.c.segment_1, table.c.segment_2).where(*where))
    return [(min(one, two), max(one, two)) for one, two in rows]
