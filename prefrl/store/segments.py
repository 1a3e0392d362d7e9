"""Segments, their arrays, and, apart from them, their true rewards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from prefrl.errors import DataError
from prefrl.segments.codec import decode_arrays, decode_steps, encode_arrays, encode_steps
from prefrl.store.engine import Database
from prefrl.store.records import chunks, insert_or_ignore, whole
from prefrl.store.schema import clip, comparison, query, run, segment, segment_data, segment_truth
from prefrl.types import Segment


def add_segments(
    db: Database, run_id: int, segments: Sequence[Segment], true_rewards: Sequence[NDArray[Any]] | None
) -> list[int]:
    """Stores segments, all or none; one that the run has already keeps its row.

    Args:
        db: The database of the run.
        run_id: The run.
        segments: What to store.
        true_rewards: For each segment the environment's own rewards, shape (T,), or None.

    Returns:
        The row id of each segment, in the order given.

    Raises:
        DataError: A segment is empty or its arrays differ in length.
    """
    if true_rewards is not None and len(true_rewards) != len(segments):
        raise DataError(f"{len(segments)} segments came with {len(true_rewards)} true rewards: give one for each")
    packed: dict[str, tuple[Segment, dict[str, Any], dict[str, Any] | None]] = {}
    for index, one in enumerate(segments):  # before the transaction: packing takes time
        if one.digest not in packed:
            truth = None if true_rewards is None else _truth(one, true_rewards[index])
            packed[one.digest] = (one, pack_segment(one), truth)
    with db.write() as connection:
        # one writer at a time: ids follow the order given, and two with equal segments cannot deadlock
        connection.execute(sa.select(run.c.id).where(run.c.id == run_id).with_for_update(key_share=True))
        rows = [_row(run_id, one) for one, _, _ in packed.values()]
        insert = insert_or_ignore(connection, segment).returning(segment.c.digest, segment.c.id)
        new = [(*packed[digest], id_) for digest, id_ in connection.execute(insert, rows).all()] if rows else []
        if new:
            connection.execute(sa.insert(segment_data), [{"segment_id": id_, **data} for _, data, _, id_ in new])
        truths = [{"segment_id": id_, **truth} for _, _, truth, id_ in new if truth is not None]
        if truths:
            connection.execute(sa.insert(segment_truth), truths)
        ids: dict[str, int] = {}
        for some in chunks(list(packed)):
            found = sa.select(segment.c.digest, segment.c.id).where(segment.c.digest.in_(some))
            ids.update(connection.execute(found.where(segment.c.run_id == run_id)).all())
    return [ids[one.digest] for one in segments]


def pack_segment(one: Segment) -> dict[str, Any]:
    """The arrays of a segment as the columns of `segment_data`; an emulator has one state for all steps.

    Raises:
        DataError: It is empty or its arrays differ in length.
    """
    lengths = {len(one.obs), len(one.act)}
    if one.states is not None and not one.replayed:
        lengths.add(len(one.states))
    if len(lengths) != 1 or 0 in lengths:
        raise DataError(f"a segment has arrays of {sorted(lengths)} steps: all must have the same number, not 0")
    states = None if one.states is None else encode_arrays({"states": one.states})
    return {"arrays": encode_steps(one.obs, one.act), "states": states}


def load_segments(db: Database, ids: Iterable[int], *, with_states: bool = False) -> dict[int, Segment]:
    """Reads segments, without their true rewards.

    Args:
        db: The database of the run.
        ids: Row ids; one that has been pruned is left out of the result.
        with_states: Also the simulator states, which only drawing needs.

    Raises:
        DataError: Stored bytes are damaged; the message names the segment.
    """
    columns: list[Any] = [segment, segment_data.c.arrays]
    if with_states:
        columns.append(segment_data.c.states)
    statement = sa.select(*columns).join_from(segment, segment_data)
    with db.read() as connection:
        rows = [
            row for some in chunks(whole(ids)) for row in connection.execute(statement.where(segment.c.id.in_(some)))
        ]
    return {row.id: _segment(row, with_states) for row in rows}


def recent_segment_ids(db: Database, run_id: int, n: int, *, source: str | None = None) -> list[int]:
    """The newest ``n`` segments that the run itself recorded, newest first.

    Args:
        db: The database of the run.
        run_id: The run.
        n: How many at most.
        source: Only those of one source; imported ones are left out otherwise.
    """
    wanted = ~segment.c.source.startswith("import") if source is None else segment.c.source == source
    statement = sa.select(segment.c.id).where(segment.c.run_id == run_id, wanted)
    with db.read() as connection:
        return list(connection.execute(statement.order_by(segment.c.id.desc()).limit(int(n))).scalars())


def true_rewards(db: Database, ids: Iterable[int]) -> dict[int, NDArray[Any]]:
    """The environment's own rewards of segments, shape (T,): for the oracle and for evaluation only."""
    statement = sa.select(segment_truth.c.segment_id, segment_truth.c.rewards)
    return {key: _unpack(key, blob)["rewards"] for key, blob in _truth_rows(db, statement, ids)}


def true_returns(db: Database, ids: Iterable[int]) -> dict[int, float]:
    """The sums of `true_rewards`: for the oracle and for evaluation only."""
    statement = sa.select(segment_truth.c.segment_id, segment_truth.c.true_return)
    return dict(_truth_rows(db, statement, ids))


def prune_segments(db: Database, run_id: int, keep: int) -> int:
    """Deletes old segments that no query and no comparison names, and their data and true rewards.

    Those of the untrained policy (``initial``) stay: statistics that must not change are measured on them.

    Args:
        db: The database of the run.
        run_id: The run.
        keep: How many of the newest unnamed ones stay.

    Returns:
        How many went.
    """
    named = [table.c[f"segment_{side}"] for table in (query, comparison) for side in (1, 2)]
    unnamed = sa.and_(*(~sa.exists().where(column == segment.c.id) for column in named))
    old = sa.select(segment.c.id).where(segment.c.run_id == run_id, segment.c.source != "initial", unnamed)
    # on PostgreSQL a propose() that begins meanwhile waits for the row, and finds it gone
    old = old.order_by(segment.c.id.desc()).offset(max(int(keep), 0)).with_for_update(skip_locked=True)
    if db.dialect == "sqlite":
        old = old.limit(-1)  # SQLite knows no OFFSET without LIMIT
    with db.write() as connection:
        locked = list(connection.execute(old).scalars())
        ids: list[int] = []
        for some in chunks(locked):  # again, now that no new query can name them
            still = sa.select(segment.c.id).where(segment.c.id.in_(some), unnamed)
            ids.extend(connection.execute(still).scalars())
        for some in chunks(ids):
            for table in (segment_data, segment_truth, clip):
                connection.execute(sa.delete(table).where(table.c.segment_id.in_(some)))
            connection.execute(sa.delete(segment).where(segment.c.id.in_(some)))
    return len(ids)


def _row(run_id: int, one: Segment) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "digest": one.digest,
        "n_steps": len(one),
        "env_index": int(one.env_index),
        "episode": int(one.episode),
        "start": int(one.start),
        "env_steps": int(one.env_steps),
        "source": one.source,
    }


def _truth(one: Segment, rewards: NDArray[Any]) -> dict[str, Any]:
    values = np.asarray(rewards, dtype=np.float64)
    if values.shape != (len(one),) or not np.isfinite(values).all():
        raise DataError(f"true rewards of a segment of {len(one)} steps: need as many finite numbers, one per step")
    return {"true_return": float(values.sum()), "rewards": encode_arrays({"rewards": values})}


def _truth_rows(db: Database, statement: sa.Select[Any], ids: Iterable[int]) -> list[Any]:
    with db.read() as connection:
        return [
            tuple(row)
            for some in chunks(whole(ids))
            for row in connection.execute(statement.where(segment_truth.c.segment_id.in_(some)))
        ]


def _segment(row: sa.Row[Any], with_states: bool) -> Segment:
    try:
        obs, act = decode_steps(row.arrays)
    except DataError as error:
        raise _damaged(row.id, error) from error
    states = _unpack(row.id, row.states)["states"] if with_states and row.states is not None else None
    return Segment(obs, act, states, row.env_index, row.episode, row.start, row.env_steps, row.source)


def _unpack(segment_id: int, blob: bytes) -> dict[str, NDArray[Any]]:
    try:
        return decode_arrays(blob)
    except DataError as error:
        raise _damaged(segment_id, error) from error


def _damaged(segment_id: int, error: DataError) -> DataError:
    return DataError(f"segment {segment_id}: {error}: restore the database from a backup")
