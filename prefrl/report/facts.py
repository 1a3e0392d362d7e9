"""What the report says, read from the database and computed, before anything is drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prefrl.config import RunConfig
from prefrl.envs.tasks import has_true_reward
from prefrl.errors import PrefrlError
from prefrl.report.ranking import Ranked, ranking
from prefrl.reward_model.schedule import n_scheduled
from prefrl.rollout.pace import learning_starts
from prefrl.run.status import Status, read_status
from prefrl.settings import from_dict
from prefrl.store.checkpoints import list_checkpoints
from prefrl.store.comparisons import active, tail
from prefrl.store.engine import Database
from prefrl.store.folder import clip_names, is_clips
from prefrl.store.metrics import Event, Metric, events, read_metrics
from prefrl.store.rewards import reward_versions
from prefrl.store.runs import Run, get_run
from prefrl.types import Checkpoint, Comparison, Preference, RewardVersion

if TYPE_CHECKING:  # torch, which the web app must not load
    from prefrl.report.quality import Quality

N_EVENTS = 100
ROLLOUT_METRICS = ("true_return", "learned_return")


@dataclass(frozen=True)
class Series:
    """A number over the run: agent steps and values, (N,) each, in order of the steps."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Facts:
    """Everything about a run that the page shows.

    Attributes:
        comparisons: Those that stand, in order of seq; superseded and withdrawn ones are gone.
        n_replaced: Rows that were superseded or withdrawn.
        quality: What the reward versions with weights say about segments; None where there are none.
        quality_problem: Why ``quality`` could not be computed, or an empty string.
        ranking: Of a folder of videos, the best clip first.
    """

    run: Run
    config: RunConfig
    status: Status
    metrics: dict[str, Series]
    versions: tuple[RewardVersion, ...]
    comparisons: tuple[Comparison, ...]
    n_replaced: int
    checkpoints: tuple[Checkpoint, ...]
    events: tuple[Event, ...]
    quality: Quality | None
    quality_problem: str
    ranking: tuple[Ranked, ...] = ()

    @property
    def learned(self) -> bool:
        """False for a run on the environment's own reward."""
        return self.config.reward.source != "true"

    @property
    def asks(self) -> bool:
        """Whether the run learns its reward itself, from comparisons that it asks for."""
        return self.config.reward.source == "learned"

    @property
    def truthful(self) -> bool:
        """False for a task that only people can teach, whose reward means nothing."""
        return has_true_reward(self.config.env.id)

    @property
    def end(self) -> int:
        """Agent steps at the right edge of the charts; the last rollout may pass the total."""
        return max(self.status.total_steps, self.status.env_steps)


def read_facts(db: Database, run_name: str) -> Facts:
    """Read a run.

    Raises:
        StoreError: There is no such run; names the nearest.
    """
    from prefrl.report.quality import measure

    run = get_run(db, run_name)
    config = from_dict(run.config)
    rows = tail(db, run.id)
    standing = active(rows)
    quality, problem = None, ""
    if config.reward.source != "true" and not is_clips(run):
        try:
            quality = measure(db, run, config, rows)
        except PrefrlError as error:  # a net of the user's that is not installed here, damaged weights
            problem = str(error)
    return Facts(
        run=run,
        config=config,
        status=read_status(db, run_name),
        metrics=series(read_metrics(db, run.id, ROLLOUT_METRICS)),
        versions=tuple(reward_versions(db, run.id)),
        comparisons=tuple(standing),
        n_replaced=len(rows) - len(standing),
        checkpoints=tuple(list_checkpoints(db, run.id)),
        events=tuple(events(db, run.id, limit=N_EVENTS)),
        quality=quality,
        quality_problem=problem,
        ranking=tuple(ranking(standing, clip_names(db, run.id))) if is_clips(run) else (),
    )


def series(metrics: list[Metric]) -> dict[str, Series]:
    """Sort metrics by name; what a resumed run did again replaces what it had done before."""
    named: dict[str, list[Metric]] = {}
    for one in metrics:
        named.setdefault(one.name, []).append(one)
    result = {}
    for name, rows in named.items():
        kept: list[Metric] = []
        for one in reversed(rows):
            if not kept or one.env_steps < kept[-1].env_steps:
                kept.append(one)
        steps, values = [m.env_steps for m in kept[::-1]], [m.value if isfinite(m.value) else nan for m in kept[::-1]]
        result[name] = Series(np.array(steps, np.float64), np.array(values, np.float64))
    return result


def version_series(versions: tuple[RewardVersion, ...], name: str) -> Series:
    """One of the numbers stored with the reward versions; NaN where a version lacks it."""
    steps, values = [v.env_steps for v in versions], [v.metrics.get(name, np.nan) for v in versions]
    return Series(np.array(steps, np.float64), np.array(values, np.float64))


def counted(comparisons: tuple[Comparison, ...]) -> Series:
    """How many comparisons of the budget had been asked after how many agent steps."""
    asked_at = [c.env_steps for c in comparisons if c.mu is not None and not c.late]
    steps, n = np.unique(np.array(asked_at, np.float64), return_counts=True)
    return Series(steps, np.cumsum(n).astype(np.float64))


def schedule(config: RunConfig, n: int = 200) -> Series:
    """How many comparisons should have been asked, from the first question to the end of the run."""
    start, total = learning_starts(config), config.policy.steps
    steps = np.linspace(start, max(start, total), n)
    values = [n_scheduled(config.label, int(s) - start, total - start) for s in steps]
    return Series(steps, np.array(values, np.float64))


@dataclass(frozen=True)
class Answers:
    """What was answered, by one annotator or by all.

    Attributes:
        on_left: Decided answers to queries for the left side; imported comparisons were never shown here.
        on_right: The same for the right side.
    """

    annotator: str
    counts: dict[Preference, int]
    on_left: int
    on_right: int

    @property
    def n(self) -> int:
        """All answers."""
        return sum(self.counts.values())


def answers(annotator: str, comparisons: list[Comparison]) -> Answers:
    """Count the answers; ``comparisons`` are all of this annotator's."""
    shown = Counter(c.preference for c in comparisons if c.query_id is not None)
    return Answers(
        annotator, Counter(c.preference for c in comparisons), shown[Preference.LEFT], shown[Preference.RIGHT]
    )


def answers_by_annotator(comparisons: tuple[Comparison, ...]) -> list[Answers]:
    """One count for each annotator, the busiest first."""
    named: dict[str, list[Comparison]] = {}
    for one in comparisons:
        named.setdefault(one.annotator, []).append(one)
    return sorted((answers(name, rows) for name, rows in named.items()), key=lambda a: (-a.n, a.annotator))
