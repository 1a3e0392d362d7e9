"""Clips: the videos of segments, drawn only when an open query needs them.

::

    (no row) --claim--> pending --store--> ready --prune--> (no row)
                         ^   |  |
             claim again +---+  +--fail--> failed --retry--> (no row)
             (renderer died)

As in `prefrl.store.queue`, every arrow is one guarded statement, committed at once: nothing is locked
while a renderer draws. A clip depends on its segment only, so a claim needs no token: of two renderers
that finish the same one, the second finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.clock import now_ms
from prefrl.store.engine import Database
from prefrl.store.records import chunks, dialect_insert, whole
from prefrl.store.schema import CLIP_STATES, OPEN, clip, gold, lease, query, run, segment


@dataclass(frozen=True)
class ClipState:
    """Where the clip of a segment stands.

    Attributes:
        state: ``pending``, ``ready`` or ``failed``.
        reason: Why it failed, or None.
    """

    state: str
    reason: str | None


def claim_clips(db: Database, run_id: int, n: int, *, stale_ms: int = 60_000) -> list[int]:
    """Gives a renderer the next clips to draw, each to one renderer only.

    Wanted are the segments of open queries that have no clip yet, or one whose renderer died.

    Args:
        db: The database of the run.
        run_id: The run.
        n: At most how many; no more than can be drawn within ``stale_ms``.
        stale_ms: After how long without a video a renderer counts as dead, and anyone gets its clips.

    Returns:
        Segment row ids, those of the oldest query first; follow with `store_clip` or `fail_clip`.
    """
    died = sa.and_(clip.c.state == "pending", clip.c.updated_ms <= now_ms() - int(stale_ms))
    needed = _needed(run_id)
    wanted = (
        sa.select(needed.c.segment_id)
        .outerjoin(clip, clip.c.segment_id == needed.c.segment_id)
        .where(sa.or_(clip.c.segment_id.is_(None), died))
        .order_by(needed.c.query_id, needed.c.segment_id)
        .limit(int(n))
    )
    with db.write() as connection:
        # one claim at a time: the next renderer sees these rows and takes the clips after them
        connection.execute(sa.select(run.c.id).where(run.c.id == run_id).with_for_update(key_share=True))
        ids = list(connection.execute(wanted).scalars())
        if not ids:
            return []
        take = dialect_insert(connection, clip).on_conflict_do_update(
            index_elements=[clip.c.segment_id],
            set_={"updated_ms": now_ms()},
            where=died,  # again: it may have been drawn a moment ago
        )
        rows = [{"segment_id": id_, "state": "pending", "detail": {}} for id_ in ids]
        taken = set(connection.execute(take.returning(clip.c.segment_id), rows).scalars())
    return [id_ for id_ in ids if id_ in taken]


def store_clip(db: Database, segment_id: int, video: bytes, detail: dict[str, Any]) -> bool:
    """Stores a drawn clip: its query can be shown.

    Args:
        db: The database of the run.
        segment_id: What was claimed.
        video: The whole file.
        detail: What else is worth knowing, as plain JSON values.

    Returns:
        False where the clip was not pending (any more); then nothing changes.

    Raises:
        DataError: The video is empty.
    """
    if not video:
        raise DataError(f"segment {segment_id}: its video has no bytes: call fail_clip with the reason")
    return _finish(db, segment_id, {"state": "ready", "video": video, "detail": detail})


def fail_clip(db: Database, segment_id: int, reason: str) -> bool:
    """Notes that a clip could not be drawn; it is not tried again before `retry_clips`.

    Args:
        db: The database of the run.
        segment_id: What was claimed.
        reason: Why, for a person to read; a blank one is replaced by words that say so.

    Returns:
        False where the clip was not pending (any more); then nothing changes.
    """
    return _finish(db, segment_id, {"state": "failed", "reason": reason.strip() or "no reason was given"})


def retry_clips(db: Database, run_id: int) -> int:
    """Forgets all failures of a run, so that its segments are asked about again, and what open queries need is drawn.

    Returns:
        How many had failed.
    """
    failed = sa.delete(clip).where(clip.c.state == "failed", _of_run(run_id))
    with db.write() as connection:
        return int(connection.execute(failed).rowcount)


def clip_states(db: Database, ids: Iterable[int]) -> dict[int, ClipState]:
    """Where the clips of segments stand, without their videos; one without a row is left out."""
    statement = sa.select(clip.c.segment_id, clip.c.state, clip.c.reason)
    with db.read() as connection:
        return {
            id_: ClipState(state, reason)
            for some in chunks(whole(ids))
            for id_, state, reason in connection.execute(statement.where(clip.c.segment_id.in_(some)))
        }


def load_clip(db: Database, segment_id: int) -> bytes | None:
    """The video of a segment, or None where it is not ready."""
    statement = sa.select(clip.c.video).where(clip.c.segment_id == int(segment_id))
    with db.read() as connection:
        return connection.execute(statement).scalar()


def clip_of_lease(db: Database, token: str, side: str) -> bytes | None:
    """The video that a lease shows on one side, or None for an unknown token and a clip that is not ready.

    Args:
        db: The database of the runs.
        token: From the lease; who has it may watch, also after the answer.
        side: ``left`` or ``right``.

    Raises:
        DataError: There is no such side.
    """
    if side not in ("left", "right"):
        raise DataError(f"{side!r} is no side of a pair: left or right")
    first = lease.c.shown_left == (1 if side == "left" else 2)
    shown = sa.case((first, query.c.segment_1), else_=query.c.segment_2)
    statement = sa.select(clip.c.video).join_from(lease, query).join(clip, clip.c.segment_id == shown)
    with db.read() as connection:
        return connection.execute(statement.where(lease.c.token == token)).scalar()


def last_failure(db: Database, run_id: int) -> str | None:
    """Why the last clip of a run that failed could not be drawn, or None where none failed."""
    statement = sa.select(clip.c.reason).where(clip.c.state == "failed", _of_run(run_id))
    statement = statement.order_by(clip.c.updated_ms.desc(), clip.c.segment_id.desc()).limit(1)
    with db.read() as connection:
        return connection.execute(statement).scalar()


def clip_counts(db: Database, run_id: int) -> dict[str, int]:
    """How many clips of a run are ready and failed, and how many that open queries need are pending and ``missing``.

    One whose renderer died, and whose query is closed by now, is left as it is: nobody waits for it.
    """
    needed = _needed(run_id)
    due = sa.or_(clip.c.state != "pending", clip.c.segment_id.in_(sa.select(needed.c.segment_id)))
    statement = sa.select(clip.c.state, sa.func.count()).where(_of_run(run_id), due).group_by(clip.c.state)
    undrawn = ~sa.exists().where(clip.c.segment_id == needed.c.segment_id)
    missing = sa.select(sa.func.count()).select_from(needed).where(undrawn)
    zero = dict.fromkeys(CLIP_STATES, 0)
    with db.read() as connection:
        found = {row[0]: row[1] for row in connection.execute(statement)}
        return zero | found | {"missing": connection.execute(missing).scalar_one()}


def clips_wanted(db: Database, run_id: int) -> bool:
    """Whether an open query needs a clip that nobody has begun to draw: a look that locks nothing."""
    needed = _needed(run_id)
    undrawn = sa.select(needed.c.segment_id).where(~sa.exists().where(clip.c.segment_id == needed.c.segment_id))
    with db.read() as connection:
        return connection.execute(undrawn.limit(1)).first() is not None


def last_drawn_ms(db: Database, run_id: int) -> int:
    """When the last clip of a run was drawn or failed, by the database's clock; 0 before the first."""
    finished = sa.select(sa.func.max(clip.c.updated_ms)).where(clip.c.state != "pending", _of_run(run_id))
    with db.read() as connection:
        return connection.execute(finished).scalar() or 0


def prune_clips(db: Database, run_id: int, keep: int) -> int:
    """Deletes drawn clips that neither an open query nor a gold question needs: the database does not grow for ever.

    A query that is proposed meanwhile loses nothing: its clip is missing, and will be drawn again.

    Args:
        db: The database of the run.
        run_id: The run.
        keep: How many of those stay, the last drawn ones.

    Returns:
        How many went.
    """
    sides = (query.c.segment_1, query.c.segment_2)
    unneeded = sa.and_(*(~sa.exists().where(side == clip.c.segment_id, OPEN) for side in sides))
    known = sa.exists().where(sa.or_(gold.c.segment_1 == clip.c.segment_id, gold.c.segment_2 == clip.c.segment_id))
    old = sa.select(clip.c.segment_id).where(clip.c.state == "ready", _of_run(run_id), unneeded, ~known)
    old = old.order_by(clip.c.updated_ms.desc(), clip.c.segment_id.desc()).offset(max(int(keep), 0))
    if db.dialect == "sqlite":
        old = old.limit(-1)  # SQLite knows no OFFSET without LIMIT
    with db.write() as connection:
        return int(connection.execute(sa.delete(clip).where(clip.c.segment_id.in_(old))).rowcount)


def _needed(run_id: int) -> sa.Subquery:
    """The segments of open queries, each once, with the oldest query that shows it."""
    sides = (query.c.segment_1, query.c.segment_2)
    shown = sa.union_all(
        *(sa.select(query.c.id, side.label("segment_id")).where(query.c.run_id == run_id, OPEN) for side in sides)
    ).subquery("shown")
    oldest = sa.func.min(shown.c.id).label("query_id")
    return sa.select(shown.c.segment_id, oldest).group_by(shown.c.segment_id).subquery("needed")


def _of_run(run_id: int) -> sa.ColumnElement[bool]:
    return sa.exists().where(segment.c.id == clip.c.segment_id, segment.c.run_id == run_id)


def _finish(db: Database, segment_id: int, values: dict[str, Any]) -> bool:
    pending = sa.update(clip).where(clip.c.segment_id == int(segment_id), clip.c.state == "pending")
    with db.write() as connection:
        return bool(connection.execute(pending.values(**values, updated_ms=now_ms())).rowcount)
