"""One annotator at work on one run: what he holds, what he sends, what he can take back.

All that must not be lost is in the database or in the browser's outbox; a `Labeler` is made anew for every pass
of the page. Three rules keep answers with their pairs:

- An answer names the lease under which its pair was on the screen. The lease knows the run, the annotator and
  the side of each segment, and is kept for ever: a late answer, one from another tab, or one that was sent
  before the name was changed finds its place.
- Every entry has an id made in the browser. Entries are stored in their order, one transaction each, and are
  acknowledged only when stored; what is sent again is found by its id.
- An undo names the answer that it takes back, not "the last one".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from labeling_app.outbox import Entry, MalformedError, read_entry
from labeling_app.rules import mix_of, rules_of
from prefrl.errors import DataError, StoreError
from prefrl.store import history, queue
from prefrl.store.again import Mix, ask_again
from prefrl.store.comparisons import n_counted, supersede
from prefrl.store.engine import Database
from prefrl.store.history import N_UNDO, Holder
from prefrl.store.runs import Run
from prefrl.types import Answer, Comparison, Lease, Preference

LEASE_MS = 120_000
_TRIES = 3  # how often a row may be superseded by somebody else while it is looked up here


@dataclass(frozen=True)
class Ack:
    """The browser may forget an entry.

    Attributes:
        id: Of the entry.
        kind: Of the entry; "" where it could not be read.
        outcome: ``saved``, ``late`` (trains, but outside the budget), ``undone``, ``skipped``, or why it was refused:
            ``malformed``, ``unknown``, ``nothing_to_undo``, ``too_long_ago``, ``changed``.
    """

    id: str
    kind: str
    outcome: str

    @property
    def stored(self) -> bool:
        """Whether the entry did what it was sent for."""
        return self.outcome in ("saved", "late", "undone", "skipped")


@dataclass(frozen=True)
class Taken:
    """What became of an outbox; with ``reachable`` false the rest waits in the browser."""

    acks: tuple[Ack, ...] = ()
    reachable: bool = True


@dataclass(frozen=True)
class Pair:
    """A pair to show. ``replaces`` is the id of the undo where it was answered before, else ""."""

    token: str
    query_id: int
    replaces: str = ""


@dataclass(frozen=True)
class Answered:
    """An answer that can be taken back: its id, and its pair."""

    id: str
    pair: Pair


@dataclass(frozen=True)
class Held:
    """What the page shows.

    Attributes:
        pairs: To be shown, in this order.
        past: Answers that can be taken back, newest first.
        done: Comparisons that count, of all annotators.
        budget: How many are wanted; 0 where the run does not say.
    """

    pairs: tuple[Pair, ...] = ()
    past: tuple[Answered, ...] = ()
    done: int = 0
    budget: int = 0

    @property
    def complete(self) -> bool:
        """Whether no further comparison is wanted."""
        return self.budget > 0 and self.done >= self.budget


@dataclass(frozen=True)
class Labeler:
    """An annotator's session.

    Args:
        db: The comparison database.
        run: The run.
        annotator: A name; nobody has checked that it is his.
        tab: Which of his browser tabs this is; each holds pairs of its own. "" is all of them.
        lease_ms: How long they are his without a sign of life from the page.
        detail: What is stored with every answer, beside how the pair was watched.
    """

    db: Database
    run: Run
    annotator: str
    tab: str = ""
    lease_ms: int = LEASE_MS
    detail: dict[str, Any] = field(default_factory=lambda: {"authenticated": False})

    @property
    def key(self) -> str:
        """Names the run to the browser, and tells a run from another one of the same name."""
        return sha256(f"{self.run.id}/{self.run.name}/{self.run.created_ms}".encode()).hexdigest()[:16]

    def take(self, entries: list[Any]) -> Taken:
        """Stores what the browser sends, in order; never raises for an entry.

        An entry of another run that this database does not know is left alone: it stays in the browser, until
        the database that gave its lease is served again.
        """
        acks: list[Ack] = []
        for raw in entries:
            try:
                entry = read_entry(raw)
                outcome = self._store(entry)
                if outcome != "unknown" or entry.run in ("", self.key):
                    acks.append(Ack(entry.id, entry.kind, outcome))
            except MalformedError as bad:
                acks.append(Ack(bad.id, "", "malformed"))
            except DataError:
                acks.append(Ack(entry.id, entry.kind, "unknown"))
            except StoreError:
                return Taken(tuple(acks), reachable=False)
        return Taken(tuple(acks))

    def refill(self) -> Held:
        """Extends what he holds, and takes as much as is missing; pairs that he took back come first.

        Raises:
            StoreError: The database does not answer.
        """
        rules = rules_of(self.run)
        budget, prefetch = rules.budget or 0, rules.prefetch
        done = n_counted(self.db, self.run.id)
        again = [
            Pair(past.token, past.query_id, past.uuid)
            for past in history.reopened(self.db, self.run.id, self.annotator, tab=self.tab)
        ]
        wanted = min(prefetch, budget - done) if budget else prefetch
        pairs: list[Pair] = []
        if wanted > 0:
            held = queue.resume_leases(self.db, self.run.id, self.annotator, self.lease_ms, tab=self.tab)
            held += self._lease(wanted - len(held), mix_of(rules))
            pairs = [Pair(one.token, one.query_id) for one in held[:wanted]]
        past = tuple(
            Answered(row.uuid, Pair(row.token, row.query_id))
            for row in history.standing(self.db, self.run.id, self.annotator)
        )
        return Held((*again, *pairs), past, done, budget)

    def _lease(self, n: int, mix: Mix) -> list[Lease]:
        if n <= 0:
            return []
        who = (self.db, self.run.id, self.annotator)
        again = ask_again(*who, mix, n=n, lease_ms=self.lease_ms, tab=self.tab)
        if len(again) == n:
            return again
        n -= len(again)
        return again + queue.lease(*who, n=n, lease_ms=self.lease_ms, clips=True, tab=self.tab)

    def _store(self, entry: Entry) -> str:
        holder = history.holder_of(self.db, entry.token)
        if holder is None or holder.query_id != entry.query_id:
            return "unknown"
        if entry.kind == "undo":
            return self._undo(entry, holder)
        if entry.kind == "skip":
            return self._skip(entry, holder)
        known = history.by_uuid(self.db, entry.id)
        if known is not None and (known.query_id != entry.query_id or known.annotator != holder.annotator):
            return "unknown"  # somebody else's id
        if known is None and entry.replaces:
            known = self._answer_anew(entry, holder)
            if known is None:
                return "changed"
        if known is None:
            known = self._answer(entry, holder)
        return "late" if known.late else "saved"

    def _answer(self, entry: Entry, holder: Holder) -> Comparison:
        said = Preference(entry.kind)
        detail = self._detail(entry, holder)
        answer = Answer(entry.query_id, entry.token, said, holder.annotator, entry.id, entry.response_ms, detail)
        (stored,) = queue.answer(self.db, [answer])
        return stored

    def _answer_anew(self, entry: Entry, holder: Holder) -> Comparison | None:
        """Supersedes what he said about the pair; None where somebody else has changed that."""
        for _ in range(_TRIES):
            old = history.newest_of(self.db, holder.run_id, entry.replaces)
            # an undo that was refused left the answer as it was
            old = old or history.newest_of_lease(self.db, entry.token, holder.annotator)
            if old is None:  # nor was there an answer
                return self._answer(entry, holder)
            if old.annotator != holder.annotator or old.query_id != holder.query_id:
                return None
            try:
                return supersede(
                    self.db,
                    holder.run_id,
                    old.seq,
                    Preference(entry.kind),
                    holder.annotator,
                    entry.id,
                    response_ms=entry.response_ms,
                    detail=self._detail(entry, holder),
                )
            except DataError:  # another tab was faster: look again
                continue
        return None

    def _detail(self, entry: Entry, holder: Holder) -> dict[str, Any]:
        # who is logged in says nothing about an answer to somebody else's lease
        own = holder.annotator == self.annotator
        return {**self.detail, "authenticated": own and bool(self.detail.get("authenticated")), **entry.view}

    def _undo(self, entry: Entry, holder: Holder) -> str:
        if history.by_uuid(self.db, entry.id) is not None:
            return "undone"
        for _ in range(_TRIES):
            old = history.newest_of(self.db, holder.run_id, entry.target)
            if old is None or old.query_id != holder.query_id:
                return "nothing_to_undo"
            if old.annotator != holder.annotator:
                return "changed"
            if old.preference is Preference.WITHDRAWN:
                return "undone"
            near = history.standing(self.db, holder.run_id, holder.annotator, N_UNDO)
            if old.seq not in {past.seq for past in near}:
                return "too_long_ago"
            try:
                detail = self._detail(entry, holder)
                supersede(
                    self.db, holder.run_id, old.seq, Preference.WITHDRAWN, holder.annotator, entry.id, detail=detail
                )
            except DataError:
                continue
            return "undone"
        return "changed"

    def _skip(self, entry: Entry, holder: Holder) -> str:
        if entry.replaces:
            history.set_aside(self.db, entry.token, holder.annotator)
        else:
            queue.skip(self.db, entry.token, holder.annotator)
        return "skipped"
