"""The paper's oracle and B-Pref's imperfect teachers (Christiano et al. 2017, section 3.1; Lee et al. 2021).

A teacher sees two segments, left and right, with their true rewards, and answers. Thresholds and temperatures
are in units of the spread of true segment returns, so that no answer depends on the reward's scale.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import ConfigError, describe
from prefrl.registry import find
from prefrl.types import Preference


@dataclass(frozen=True, eq=False)
class Judged:
    """A segment as a synthetic annotator sees it.

    Attributes:
        rewards: The environment's own rewards, shape (T,); zeros where there is no true reward.
        obs: Raw observations before each action, shape (T, *obs).
        act: Actions, shape (T, *act).
    """

    rewards: NDArray[np.float64]
    obs: NDArray[Any]
    act: NDArray[Any]

    @property
    def true_return(self) -> float:
        """Undiscounted sum of the true rewards."""
        return float(self.rewards.sum())


@dataclass(frozen=True)
class ReturnStatistics:
    """True segment returns against which a teacher measures.

    Attributes:
        spread: Standard deviation over the untrained policy's segments; constant over a run.
        recent_mean: Mean over the newest segments.
    """

    spread: float
    recent_mean: float


Teacher = Callable[[Judged, Judged, ReturnStatistics, np.random.Generator], Preference]
"""An oracle plug-in: (left, right, statistics, rng) -> Preference."""


def compare(left: float, right: float) -> Preference:
    """The larger is preferred; a tie at equality (equal rewards in another order add up with other rounding)."""
    if math.isclose(left, right, rel_tol=1e-12):
        return Preference.TIE
    return Preference.LEFT if left > right else Preference.RIGHT


def true_return() -> Teacher:
    """The paper's oracle: immediately prefers the larger true return, indifferent at equality."""
    return lambda left, right, stats, rng: compare(left.true_return, right.true_return)


def stochastic(beta: float = 5.0) -> Teacher:
    """Prefers left with probability sigmoid(beta * (R_left - R_right) / spread)."""
    _at_least("beta", beta, 0.0)

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        z = beta * (left.true_return - right.true_return) / max(stats.spread, 1e-12)
        return Preference.LEFT if rng.random() < 0.5 * (1 + np.tanh(z / 2)) else Preference.RIGHT

    return teach


def mistake(epsilon: float = 0.1) -> Teacher:
    """The paper's oracle, whose decided answers are flipped with probability epsilon."""
    if not 0 <= epsilon <= 1:
        raise ConfigError(f"the mistake oracle's epsilon must lie between 0 and 1, not {epsilon}")

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        answer = compare(left.true_return, right.true_return)
        if answer is Preference.TIE or rng.random() >= epsilon:
            return answer
        return Preference.RIGHT if answer is Preference.LEFT else Preference.LEFT

    return teach


def skip(threshold: float = 0.0) -> Teacher:
    """Cannot compare where both returns lie more than ``threshold`` spreads below the recent mean."""
    _at_least("threshold", threshold, -np.inf)

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        if max(left.true_return, right.true_return) < stats.recent_mean - threshold * stats.spread:
            return Preference.INCOMPARABLE
        return compare(left.true_return, right.true_return)

    return teach


def equal(threshold: float = 0.1) -> Teacher:
    """Calls it a tie where the returns differ by less than ``threshold`` spreads."""
    _at_least("threshold", threshold, 0.0)

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        if abs(left.true_return - right.true_return) < threshold * stats.spread:
            return Preference.TIE
        return compare(left.true_return, right.true_return)

    return teach


def myopic(gamma: float = 0.9) -> Teacher:
    """Compares returns in which a step that lies ``j`` steps before the end counts ``gamma ** j``."""
    if not 0 < gamma <= 1:
        raise ConfigError(f"the myopic oracle's gamma must lie in (0, 1], not {gamma}")

    def discounted(rewards: NDArray[np.float64]) -> float:
        return float(rewards @ gamma ** np.arange(len(rewards) - 1, -1, -1))

    def teach(left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator) -> Preference:
        return compare(discounted(left.rewards), discounted(right.rewards))

    return teach


TEACHERS: dict[str, Callable[..., Teacher]] = {
    "true-return": true_return,
    "stochastic": stochastic,
    "mistake": mistake,
    "skip": skip,
    "equal": equal,
    "myopic": myopic,
}


def make_teacher(name: str, parameters: dict[str, Any]) -> tuple[Teacher, dict[str, Any]]:
    """Build the teacher called ``name``, and tell all of its parameters, defaults included.

    Raises:
        ConfigError: Unknown name or parameter, or a plug-in that cannot be made.
    """
    make = find("oracle", name, TEACHERS)
    try:
        bound = inspect.signature(make).bind(**parameters)
        bound.apply_defaults()
        teacher = make(**parameters)
    except ConfigError:
        raise
    except TypeError as error:
        more = "" if parameters or name in TEACHERS else "; name a function that returns the oracle, not the oracle"
        raise ConfigError(f"label.oracle_kwargs do not fit the oracle {name!r}: {error}{more}") from error
    except Exception as error:  # whatever a plug-in raises
        raise ConfigError(f"the oracle {name!r} cannot be made: {describe(error)}") from error
    if not callable(teacher):
        raise ConfigError(
            f"{name!r} returned {teacher!r}; it must return the oracle: a function (left, right, stats, rng)"
        )
    return teacher, dict(bound.arguments)


def ask(
    name: str, teacher: Teacher, left: Judged, right: Judged, stats: ReturnStatistics, rng: np.random.Generator
) -> Preference:
    """The answer of the teacher called ``name``.

    Raises:
        ConfigError: It raises, or answers with something else; names the place in its code.
    """
    try:
        answer = teacher(left, right, stats, rng)
    except Exception as error:  # whatever a plug-in raises
        raise ConfigError(f"the oracle {name!r} failed: {describe(error)}") from error
    if not isinstance(answer, Preference) or answer is Preference.WITHDRAWN:
        raise ConfigError(
            f"the oracle {name!r} answered {answer!r}, not LEFT, RIGHT, TIE or INCOMPARABLE of prefrl.types.Preference"
        )
    return answer


def _at_least(name: str, value: float, low: float) -> None:
    if not low <= value < np.inf:
        raise ConfigError(f"the oracle's {name} must be a finite number of at least {low:g}, not {value}")
