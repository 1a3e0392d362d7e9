"""The oracle role: leases queries and answers them from the true rewards."""

from __future__ import annotations

import numpy as np

from prefrl.oracle.teachers import Judged, ReturnStatistics, ask, make_teacher
from prefrl.seeding import Stream, rng_for
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.queue import answer, counts, lease, resume_leases
from prefrl.store.runs import Run
from prefrl.store.segments import load_segments, recent_segment_ids, true_returns, true_rewards
from prefrl.types import TOLD, Answer, Lease

BATCH = 64
RECENT = 256


class OracleRole:
    """Answers what is asked; the only role, beside the evaluator, that sees the true reward.

    Args:
        db: The run's database.
        run: The run.
    """

    name = "oracle"

    def __init__(self, db: Database, run: Run) -> None:
        config = from_dict(run.config)
        self.db, self.run, self.label, self.seed = db, run, config.label, config.seed
        self.objective = config.reward.objective
        self.teacher, self.parameters = make_teacher(self.label.oracle, self.label.oracle_kwargs)
        self.annotator = f"oracle:{self.label.oracle}"
        self._spread: float | None = None

    def step(self) -> bool:
        """Answer up to one batch of queries; False if there was none."""
        state = counts(self.db, self.run.id)
        if not state["proposed"] + state["leased"] + state["skipped"]:
            return False
        leases = resume_leases(self.db, self.run.id, self.annotator)  # those of a process that died
        sides = rng_for(self.seed, Stream.SIDES, state["answered"])
        leases = leases or lease(self.db, self.run.id, self.annotator, n=BATCH, rng=sides)
        if not leases:
            return False
        judged = self._judged(sorted({i for le in leases for i in (le.segment_1, le.segment_2)}))
        stats = self._statistics()
        answer(self.db, [self._answer(le, judged, stats) for le in leases])
        return True

    def waiting_for(self) -> str:
        """What is missing before the next answer, in words."""
        return "queries"

    def _answer(self, lease: Lease, judged: dict[int, Judged], stats: ReturnStatistics) -> Answer:
        pair = (judged[lease.segment_1], judged[lease.segment_2])
        left, right = pair if lease.shown_left == 1 else pair[::-1]
        rng = rng_for(self.seed, Stream.ORACLE, lease.query_id)
        detail = {"oracle": self.label.oracle, **self.parameters}  # no true return: the reward role reads it
        if self.objective == "target":  # the ablation that is told them
            detail[TOLD] = [float(one.rewards.sum()) for one in pair]
        return Answer(
            query_id=lease.query_id,
            token=lease.token,
            preference=ask(self.label.oracle, self.teacher, left, right, stats, rng),
            annotator=self.annotator,
            uuid=lease.token,  # one answer a lease, however often it is sent
            detail=detail,
        )

    def _judged(self, ids: list[int]) -> dict[int, Judged]:
        rewards, segments = true_rewards(self.db, ids), load_segments(self.db, ids)
        if not rewards:  # a task without a true reward: a plug-in judges by what happened
            rewards = {key: np.zeros(len(one)) for key, one in segments.items()}
        return {key: Judged(rewards[key], one.obs, one.act) for key, one in segments.items()}

    def _statistics(self) -> ReturnStatistics:
        if self._spread is None:
            first = true_returns(self.db, recent_segment_ids(self.db, self.run.id, 10_000, source="initial"))
            self._spread = float(np.std(list(first.values()))) if first else 1.0
        recent = true_returns(self.db, recent_segment_ids(self.db, self.run.id, RECENT))
        return ReturnStatistics(self._spread, float(np.mean(list(recent.values()) or [0.0])))
