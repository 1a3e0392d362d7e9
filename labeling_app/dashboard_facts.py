"""What the dashboard says about a run, read from the database alone; nothing here writes, and nothing loads torch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from prefrl.config import RunConfig
from prefrl.report import agreement, tempo
from prefrl.report.agreement import Kappa, Share
from prefrl.report.facts import Series, series, version_series
from prefrl.report.ranking import Ranked, ranking
from prefrl.report.tempo import Times
from prefrl.report.watch import Watch, watch
from prefrl.reward_model.calibration import Calibration, agreed_from_metrics, from_metrics
from prefrl.reward_model.held_out import Look, looks
from prefrl.run.status import Status, read_status
from prefrl.settings import from_dict
from prefrl.store.browse import Waiting, database_now_ms, expected_answers, waiting
from prefrl.store.clips import clip_counts
from prefrl.store.comparisons import active, tail
from prefrl.store.engine import Database
from prefrl.store.folder import clip_names, is_clips
from prefrl.store.metrics import Metric, read_metrics
from prefrl.store.queue import counts
from prefrl.store.rewards import reward_versions
from prefrl.store.runs import get_run
from prefrl.types import Comparison, Preference, RewardVersion

RETURNS = ("true_return", "learned_return")
EMPTY_SERIES = Series(np.empty(0), np.empty(0))


@dataclass(frozen=True)
class Person:
    """One annotator's numbers, or those of all together; None is what cannot be computed."""

    annotator: str | None
    n: int
    left: Share | None
    ties: Share | None
    cant_tell: Share | None
    times: Times | None
    consistent: Share | None
    gold: Share | None
    model: Share | None


@dataclass(frozen=True)
class People:
    """The numbers of all annotators.

    Attributes:
        standing: Comparisons that are neither superseded nor withdrawn.
        everybody: All annotators together.
        each: One for each annotator, the busiest first.
        kappas: Of every two annotators who answered a common pair.
        fleiss: Of all annotators.
    """

    standing: tuple[Comparison, ...]
    everybody: Person
    each: tuple[Person, ...]
    kappas: dict[tuple[str, str], Kappa]
    fleiss: Kappa | None


@dataclass(frozen=True)
class Facts:
    """A run at one moment.

    Attributes:
        standing: Comparisons that are neither superseded nor withdrawn.
        n_replaced: Rows that are.
        ranking: Of a folder of videos, the best clip first.
        per_hour: Answers of the last hour, scaled to an hour; None before the first.
    """

    status: Status
    config: RunConfig
    standing: tuple[Comparison, ...]
    n_replaced: int
    versions: tuple[RewardVersion, ...]
    true: Series
    learned: Series
    counts: dict[str, int]
    clips: dict[str, int]
    waiting: Waiting | None
    now_ms: int
    people: People
    per_hour: float | None
    ranking: tuple[Ranked, ...] = ()

    @property
    def is_clips(self) -> bool:
        """Whether the run is a folder of videos: nothing is trained."""
        return self.status.is_clips

    @property
    def is_learned(self) -> bool:
        """False for a run on the environment's own reward."""
        return self.config.reward.source != "true"

    @property
    def asks(self) -> bool:
        """False where nobody is asked anything: on the environment's own reward, and on one that stays as it is."""
        return self.config.reward.source == "learned"

    @property
    def calibration(self) -> Calibration:
        """Of the newest reward version, on comparisons that its members were not fitted to."""
        return from_metrics(self.versions[-1].metrics if self.versions else {})

    @property
    def held_out(self) -> list[Look]:
        """What people said of comparisons that are never trained on, and what the reward expected, over the run."""
        return looks(self.versions)

    @property
    def watch(self) -> Watch:
        """Whether the policy seems to exploit the learned reward."""
        accuracy = version_series(self.versions, "oob_accuracy")
        return watch(self.learned.values, self.true.values, accuracy.values, next(reversed(self.held_out), None))

    @property
    def time_left_ms(self) -> float | None:
        """To the end of the budget at the rate of the last hour."""
        return tempo.time_left_ms(self.status.comparisons, self.status.budget, self.per_hour)


@dataclass
class Known:
    """What was read before and never changes: comparisons and metrics are append-only, so only newer ones are read.

    Attributes:
        run: Which run it is about; another one begins anew.
        people_of: What ``people`` was computed from; computed again only when that has changed.
    """

    run: tuple[str, int, int] | None = None
    rows: list[Comparison] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    people_of: object = None
    people: People | None = None


def read_dashboard(db: Database, run_name: str, known: Known | None = None) -> Facts:
    """Read a run.

    Args:
        db: The database of the run.
        run_name: The run.
        known: What an earlier call has read; brought up to date.

    Raises:
        StoreError: There is no such run, or the database is out of reach.
    """
    run = get_run(db, run_name)
    known = known or Known()
    if known.run != (this := (db.url, run.id, run.created_ms)):
        known.run, known.rows, known.metrics, known.people = this, [], [], None
    known.rows += tail(db, run.id, known.rows[-1].seq if known.rows else 0)
    known.metrics += read_metrics(db, run.id, RETURNS, known.metrics[-1].id if known.metrics else 0)
    versions = tuple(reward_versions(db, run.id))
    gold = expected_answers(db, run.id)
    model = agreed_from_metrics(versions[-1].metrics if versions else {})
    if known.people is None or known.people_of != (len(known.rows), gold, model):
        known.people_of, known.people = (len(known.rows), gold, model), _people(known.rows, gold, model)
    standing, named, now = known.people.standing, series(known.metrics), database_now_ms(db)
    return Facts(
        status=read_status(db, run_name),
        config=from_dict(run.config),
        standing=standing,
        n_replaced=len(known.rows) - len(standing),
        versions=versions,
        true=named.get("true_return", EMPTY_SERIES),
        learned=named.get("learned_return", EMPTY_SERIES),
        counts=counts(db, run.id),
        clips=clip_counts(db, run.id),
        waiting=waiting(db, run.id),
        now_ms=now,
        people=known.people,
        per_hour=tempo.per_hour(standing, now),
        ranking=tuple(ranking(standing, clip_names(db, run.id))) if is_clips(run) else (),
    )


def _people(rows: list[Comparison], gold: dict[int, float], model: dict[str, tuple[int, int]]) -> People:
    standing = tuple(active(rows))
    named: dict[str, list[Comparison]] = {}
    for row in standing:
        named.setdefault(row.annotator, []).append(row)
    each = [_person(name, tuple(some), gold, model) for name, some in named.items()]
    return People(
        standing=standing,
        everybody=_person(None, standing, gold, model),
        each=tuple(sorted(each, key=lambda p: (-p.n, p.annotator or ""))),
        kappas=agreement.every_two(standing),
        fleiss=agreement.among_all(standing),
    )


def _person(
    name: str | None, rows: tuple[Comparison, ...], gold: dict[int, float], model: dict[str, tuple[int, int]]
) -> Person:
    k, n = (sum(kn[i] for who, kn in model.items() if name in (None, who)) for i in (0, 1))
    return Person(
        annotator=name,
        n=len(rows),
        left=agreement.left_share(rows),
        ties=agreement.share_of(rows, Preference.TIE),
        cant_tell=agreement.share_of(rows, Preference.INCOMPARABLE),
        times=tempo.response_times(rows),
        consistent=agreement.self_consistency(rows),
        gold=agreement.gold_pass(rows, gold),
        model=Share(k, n) if n else None,
    )
