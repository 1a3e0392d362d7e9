"""Gold questions: pairs whose right answer the owner of the run knows, asked to see how careful annotators are."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from prefrl.errors import DataError
from prefrl.store.engine import Database
from prefrl.store.records import dialect_insert
from prefrl.store.schema import gold
from prefrl.types import Comparison


@dataclass(frozen=True)
class Gold:
    """A pair, the segment with the lower id first; ``mu`` is the mass on that one which is right (1, 0.5 or 0)."""

    segment_1: int
    segment_2: int
    mu: float


def gold_of(one: Comparison) -> Gold | None:
    """What a comparison says of its pair; None where it says nothing."""
    if one.mu is None:
        return None
    low, high = one.pair
    return Gold(low, high, one.mu if one.segment_1 == low else 1.0 - one.mu)


def mark_gold(db: Database, run_id: int, one: Comparison, annotator: str) -> Gold:
    """Takes a comparison for the right answer to its pair, from now on; an earlier right answer to it goes.

    Args:
        db: The database of the run.
        run_id: The run.
        one: The comparison.
        annotator: Who says so.

    Raises:
        DataError: The comparison says nothing about the pair.
    """
    new = gold_of(one)
    if new is None:
        raise DataError(f"comparison {one.seq} is {one.preference.value!r}, which says nothing about its pair")
    pair, values = {"segment_1": new.segment_1, "segment_2": new.segment_2}, {"mu": new.mu, "annotator": annotator}
    with db.write() as connection:
        add = dialect_insert(connection, gold).values(run_id=run_id, **pair, **values)
        connection.execute(add.on_conflict_do_update(index_elements=["run_id", "segment_1", "segment_2"], set_=values))
    return new


def unmark_gold(db: Database, run_id: int, pair: tuple[int, int]) -> bool:
    """Asks a pair as a gold question no more; False where it was none."""
    this = sa.and_(gold.c.run_id == run_id, gold.c.segment_1 == min(pair), gold.c.segment_2 == max(pair))
    with db.write() as connection:
        return bool(connection.execute(sa.delete(gold).where(this)).rowcount)


def gold_questions(db: Database, run_id: int) -> list[Gold]:
    """All gold questions of a run, oldest pairs first."""
    columns = sa.select(gold.c.segment_1, gold.c.segment_2, gold.c.mu).where(gold.c.run_id == run_id)
    with db.read() as connection:
        return [Gold(*row) for row in connection.execute(columns.order_by(gold.c.segment_1, gold.c.segment_2))]
