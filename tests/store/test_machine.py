"""The query state machine against a dictionary, whatever the order of events (hypothesis)."""

from __future__ import annotations

import shutil
import tempfile

import numpy as np
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefrl.store import comparisons, queue, runs, segments
from prefrl.store.engine import Database
from prefrl.types import Answer, Preference, Segment

ANNOTATORS = st.sampled_from(["ann", "bob", "cia"])
HOUR_MS = 3_600_000


class QueueMachine(RuleBasedStateMachine):
    """The model: the state of each query, its current token, who skipped it, and all evidence."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.db = Database.create(f"sqlite:///{self.folder}/x.db")
        self.run = runs.create_run(self.db, "run", {}, {}).id
        some = [Segment(np.full((2, 1), i), np.zeros((2, 1))) for i in range(3)]
        self.segments = segments.add_segments(self.db, self.run, some, None)
        self.state: dict[int, str] = {}
        self.token: dict[int, str | None] = {}
        self.skipped: set[tuple[int, str]] = set()
        self.leases: dict[str, tuple[int, str, int]] = {}  # token -> query, annotator, side
        self.evidence: list[tuple[str, int, bool, float | None]] = []  # uuid, query, late, mu

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    @rule()
    def propose(self) -> None:
        a, b, c = self.segments
        for query_id in queue.propose(self.db, self.run, [(a, b), (c, a)], env_steps=len(self.state)):
            self.state[query_id], self.token[query_id] = "proposed", None

    @rule(annotator=ANNOTATORS, n=st.integers(1, 3))
    def lease(self, annotator: str, n: int) -> None:
        open_ones = [
            query_id
            for query_id, state in sorted(self.state.items())
            if state in ("proposed", "skipped") and (query_id, annotator) not in self.skipped
        ]
        found = queue.lease(self.db, self.run, annotator, n=n, lease_ms=HOUR_MS, skip_cooldown_ms=HOUR_MS)
        assert [one.query_id for one in found] == open_ones[:n]
        for one in found:
            assert one.token not in self.leases
            self.state[one.query_id], self.token[one.query_id] = "leased", one.token
            self.leases[one.token] = (one.query_id, annotator, one.shown_left)

    @rule()
    def time_passes(self) -> None:
        with self.db.write() as connection:
            connection.execute(sa.text("UPDATE query SET lease_expires_ms = 0 WHERE state = 'leased'"))
        for query_id, state in self.state.items():
            if state == "leased":  # the token stays good until somebody else has the query
                self.state[query_id] = "proposed"

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), preference=st.sampled_from([p for p in Preference if p != "withdrawn"]))
    def answer(self, data: st.DataObject, preference: Preference) -> None:
        token = data.draw(st.sampled_from(sorted(self.leases)))
        query_id, annotator, side = self.leases[token]
        uuid = f"{len(self.evidence)}"
        (row,) = queue.answer(self.db, [Answer(query_id, token, preference, annotator, uuid)])
        late = any(other == query_id for _, other, _, _ in self.evidence)
        assert (row.late, row.shown_left, row.mu) == (late, side, preference.mu(side))
        self.evidence.append((uuid, query_id, late, row.mu))
        if self.state[query_id] != "expired":
            self.state[query_id], self.token[query_id] = "answered", None

    @precondition(lambda self: self.evidence)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        uuid, query_id, late, mu = data.draw(st.sampled_from(self.evidence))
        token = next(token for token, (held, _, _) in self.leases.items() if held == query_id)
        (row,) = queue.answer(self.db, [Answer(query_id, token, Preference.TIE, "ann", uuid)])
        assert (row.seq, row.late, row.mu) == (int(uuid) + 1, late, mu)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def skip(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.leases)))
        query_id, annotator, _ = self.leases[token]
        held = self.token[query_id] == token
        assert queue.skip(self.db, token, annotator) is held
        if held:
            self.state[query_id], self.token[query_id] = "skipped", None
            self.skipped.add((query_id, annotator))

    @rule(before=st.integers(0, 10))
    def expire(self, before: int) -> None:
        with self.db.read() as connection:
            steps = dict(connection.execute(sa.text("SELECT id, env_steps FROM query")).all())
        gone = [one for one, state in self.state.items() if state == "proposed" and steps[one] < before]
        assert queue.expire(self.db, self.run, before_env_steps=before) == len(gone)
        for query_id in self.state:
            lapsed = self.state[query_id] == "proposed" and steps[query_id] < before
            if lapsed:
                self.state[query_id], self.token[query_id] = "expired", None

    @rule(annotator=ANNOTATORS)
    def resume(self, annotator: str) -> None:
        held = [
            token
            for token, (query_id, who, _) in self.leases.items()
            if who == annotator and self.state[query_id] == "leased" and self.token[query_id] == token
        ]
        found = queue.resume_leases(self.db, self.run, annotator, HOUR_MS)
        assert sorted(one.token for one in found) == sorted(held)
        assert all(one.shown_left == self.leases[one.token][2] for one in found)

    @invariant()
    def counts_agree(self) -> None:
        found = queue.counts(self.db, self.run)
        assert found == {state: list(self.state.values()).count(state) for state in found}
        rows = comparisons.tail(self.db, self.run)
        assert [(row.uuid, row.query_id, row.late, row.mu) for row in rows] == self.evidence
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        counted = [1 for _, _, late, mu in self.evidence if not late and mu is not None]
        assert comparisons.n_counted(self.db, self.run) == len(counted)


QueueMachine.TestCase.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)
test_queue_machine = QueueMachine.TestCase
