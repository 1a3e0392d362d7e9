"""What people's comparisons of a folder of clips say: the clips from the best to the worst.

The model of Bradley and Terry (1952): clip i is preferred to clip j with probability p_i / (p_i + p_j). The strengths
are fitted by Hunter's MM algorithm (2004, section 3), where a tie is half a win for each. A clip that won everything
would be infinitely strong, so each is also compared ``PRIOR`` times with an imagined clip of strength 1, half won and
half lost: strengths stay finite, and are odds against that average clip.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.store.comparisons import active, tail
from prefrl.store.engine import Database
from prefrl.store.folder import clip_names
from prefrl.store.runs import get_run
from prefrl.types import Comparison

PRIOR = 1.0
TOLERANCE, MAX_ITERATIONS = 1e-10, 100_000  # of log-strengths
Z = 1.96  # of the 95 % interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranked:
    """A clip that was compared.

    Attributes:
        name: Of its file.
        strength: Odds of beating an average clip; 1 is average.
        share: The same as a probability.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    name: str
    strength: float
    share: float
    low: float
    high: float
    won: int
    tied: int
    lost: int

    @property
    def words(self) -> str:
        """The share with its interval, in per cent."""
        return f"{100 * self.share:.0f} % ({100 * self.low:.0f} to {100 * self.high:.0f})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def read_ranking(db: Database, run_name: str) -> list[Ranked]:
    """The clips of a run that were compared, the best first.

    Raises:
        StoreError: There is no such run.
    """
    run = get_run(db, run_name)
    return ranking(active(tail(db, run.id)), clip_names(db, run.id))


def ranking(standing: Iterable[Comparison], names: Mapping[int, str]) -> list[Ranked]:
    """Ranks clips.

    Args:
        standing: Answers that still stand; those that cannot tell say nothing and are passed over.
        names: Of the clips, by the row ids of their segments.

    Returns:
        Those that were compared, the strongest first, equal ones by name.
    """
    rows = [row for row in standing if row.mu is not None]
    ids = sorted({side for row in rows for side in (row.segment_1, row.segment_2)})
    at = {id_: index for index, id_ in enumerate(ids)}
    wins = np.zeros((len(ids), len(ids)))  # (S, S): how often row was preferred to column, ties half
    tied = np.zeros(len(ids), int)
    for row in rows:
        one, two, mu = at[row.segment_1], at[row.segment_2], row.mu or 0.0
        wins[one, two] += mu
        wins[two, one] += 1 - mu
        tied[[one, two]] += mu == 0.5
    strength = fit(wins)
    error = errors(wins, strength)
    result = []
    for i, id_ in enumerate(ids):
        logit = math.log(strength[i])
        share, low, high = (_share(logit + z * error[i]) for z in (0.0, -Z, Z))
        won, lost = (round(float(half.sum() - tied[i] / 2)) for half in (wins[i], wins[:, i]))
        name = names.get(id_, f"segment {id_}")
        result.append(Ranked(name, float(strength[i]), share, low, high, won, int(tied[i]), lost))
    return sorted(result, key=lambda one: (-round(one.share, 9), one.name))


def fit(wins: Floats, prior: float = PRIOR) -> Floats:
    """Strengths of the Bradley-Terry model.

    Args:
        wins: How often each was preferred to each other, ties half, shape (S, S).
        prior: How often each is also compared with an average clip, above 0.

    Returns:
        Strengths above 0, shape (S,).
    """
    won = wins.sum(1) + prior / 2  # (S,)
    n = wins + wins.T  # (S, S)
    p = np.ones(len(wins))
    for _ in range(MAX_ITERATIONS):
        new = won / ((n / (p[:, None] + p)).sum(1) + prior / (p + 1))
        step = np.abs(np.log(new / p)).max(initial=0.0)
        p = new
        if step < TOLERANCE:
            break
    return p


def errors(wins: Floats, strength: Floats, prior: float = PRIOR) -> Floats:
    """Standard errors of the log-strengths against their mean, from the curvature at the maximum, shape (S,).

    Against their mean, for how strong the clips are all together is not what they were compared for.
    """
    p, n = strength, wins + wins.T
    pull = n * np.outer(p, p) / (p[:, None] + p) ** 2  # (S, S)
    curvature = np.diag(pull.sum(1) + prior * p / (p + 1) ** 2) - pull
    centre = np.eye(len(p)) - 1 / max(1, len(p))
    return np.sqrt(np.diag(centre @ np.linalg.inv(curvature) @ centre))


def _share(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
