"""Why the page shows no pair: one answer, with the facts for its words."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from labeling_app.session import Held
from prefrl.store.clips import last_failure
from prefrl.store.engine import Database
from prefrl.store.folder import is_clips
from prefrl.store.queue import QueueState, Reason, why_empty
from prefrl.store.runs import Run
from prefrl.store.workers import STALE_MS, Worker, workers

TRAINERS = ("rollout", "reward")  # the roles without which no new pair comes


class PageState(enum.StrEnum):
    """What the page is in; each has its own words in the catalogue."""

    READY = "ready"  # a pair is there
    NO_RUN = "no_run"
    UNREACHABLE = "unreachable"
    COMING = "coming"  # something has come in since: the next look finds it
    NO_QUERY_YET = "no_query_yet"
    NO_TRAINER = "no_trainer"
    CLIPS_COMING = "clips_coming"
    CLIPS_FAILED = "clips_failed"
    HELD_ELSEWHERE = "held_elsewhere"  # by another tab of the same annotator
    LEASED_BY_OTHERS = "leased_by_others"
    ASKED_OF_OTHERS = "asked_of_others"  # asked again, of them alone
    ALL_ANSWERED = "all_answered"
    ALL_COMPARED = "all_compared"  # a folder of clips: nothing is trained, and no new pair comes by itself
    ALL_SKIPPED = "all_skipped"
    BUDGET_REACHED = "budget_reached"
    RUN_STOPPED = "run_stopped"
    RUN_FAILED = "run_failed"
    RUN_DONE = "run_done"


@dataclass(frozen=True)
class Situation:
    """The state of the page.

    Attributes:
        age_ms: Since the last sign of life of a training process; None where there was none.
        wait_ms: Until it is worth looking again, where that is known.
        reason: Why a clip could not be drawn; text from the database.
        waits_for_you: Training stands still until answers arrive.
    """

    state: PageState
    age_ms: int | None = None
    wait_ms: int | None = None
    n: int = 0
    reason: str = ""
    waits_for_you: bool = False


_ENDED = {
    "done": PageState.RUN_DONE,
    "failed": PageState.RUN_FAILED,
    "stopped": PageState.RUN_STOPPED,
}


def situation(db: Database, run: Run, annotator: str, held: Held, tab: str = "") -> Situation:
    """Tells which state the page is in.

    Args:
        db: The database of the run.
        run: The run, read a moment ago.
        annotator: Who asks.
        held: What he holds.
        tab: In which of his browser tabs.

    Raises:
        StoreError: The database does not answer.
    """
    roles = [worker for worker in workers(db, run.id) if worker.role in TRAINERS]
    waits = any(_alive(worker) and worker.state.startswith("paused") for worker in roles)
    if held.pairs:
        return Situation(PageState.READY, waits_for_you=waits)
    if held.complete:
        return Situation(PageState.BUDGET_REACHED, n=held.budget)
    if run.state in _ENDED:
        return Situation(_ENDED[run.state])
    return _waiting(db, run, annotator, tab, roles)


def _waiting(db: Database, run: Run, annotator: str, tab: str, roles: list[Worker]) -> Situation:
    queue = why_empty(db, run.id, annotator, clips=True, tab=tab)
    age = min((worker.age_ms for worker in roles), default=None)
    match queue.reason:
        case Reason.CLIPS_COMING:
            return Situation(PageState.CLIPS_COMING, age, n=queue.n_clips_coming)
        case Reason.HELD_ELSEWHERE:
            return Situation(PageState.HELD_ELSEWHERE, age, queue.wait_ms, queue.n_held_elsewhere)
        case Reason.LEASED_BY_OTHERS:
            return Situation(PageState.LEASED_BY_OTHERS, age, queue.wait_ms, queue.n_leased_by_others)
        case Reason.CLIPS_FAILED:
            reason = last_failure(db, run.id) or ""
            return Situation(PageState.CLIPS_FAILED, age, n=queue.n_clips_failed, reason=reason)
        case Reason.AVAILABLE | Reason.HELD_BY_YOU:
            return Situation(PageState.COMING, age)
    if is_clips(run):
        return _of_folder(queue)
    if not any(map(_alive, roles)):
        return Situation(PageState.NO_TRAINER, age)
    if queue.reason is Reason.NOTHING_PROPOSED:
        return Situation(PageState.NO_QUERY_YET, age)
    if queue.n_skipped_by_you:
        return Situation(PageState.ALL_SKIPPED, age, queue.wait_ms, queue.n_skipped_by_you)
    return Situation(PageState.ALL_ANSWERED, age)


def _of_folder(queue: QueueState) -> Situation:
    if queue.n_skipped_by_you:
        return Situation(PageState.ALL_SKIPPED, None, queue.wait_ms, queue.n_skipped_by_you)
    if queue.counts["leased"]:
        return Situation(PageState.ASKED_OF_OTHERS, n=queue.counts["leased"])
    return Situation(PageState.ALL_COMPARED)


def _alive(worker: Worker) -> bool:
    return not worker.released and worker.age_ms < STALE_MS
