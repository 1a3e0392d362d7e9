"""What the learned reward says of comparisons that it is never fitted to, and what people said.

Each is of a clip of what the policy does now and one of what it did untrained. The reward claims, with some
probability, that the newer one is preferred. A policy that exploits the reward's mistakes earns ever more of it, so
the claim goes up; what people say does not (Gao et al. 2022, Scaling laws for reward model overoptimization). No true
reward is needed to see the two part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prefrl.config import FEWEST_HELD_OUT
from prefrl.types import RewardVersion

WINDOW = 30  # held-out comparisons that are looked at together, the newest ones
PREFIX = "held_out_"
ALARM = "hacking_alarm"  # stored with each version: 1 while there is cause for alarm, else 0
BETTER = 0.55  # claimed share of newer clips preferred from which the policy has, by the reward, become better
LESS = 0.1  # by how much smaller the share seen must be to matter, however sure it is
BEGINS, ENDS = 2.3263478740408408, 0.5  # z; by chance one look in a hundred begins one, were the predictions right


@dataclass(frozen=True)
class Evidence:
    """Sums over some held-out comparisons, each by the reward version that was the newest when it was answered.

    Attributes:
        n: Comparisons.
        claimed: Predicted probabilities that the newer clip is preferred.
        seen: How often it was; a tie is a half.
        variance: Of ``seen``, were the predictions right: the sum of p (1 - p).
    """

    n: int = 0
    claimed: float = 0.0
    seen: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(
            self.n + other.n, self.claimed + other.claimed, self.seen + other.seen, self.variance + other.variance
        )

    @property
    def told(self) -> bool:
        """Whether there are enough to say anything."""
        return self.n >= FEWEST_HELD_OUT

    @property
    def falls_short(self) -> bool:
        """Whether the newer clips are preferred so much less often than is claimed that it matters, sure or not."""
        return self.claimed - self.seen >= LESS * self.n

    @property
    def words(self) -> str:
        """In a sentence, for terminals and events."""
        return (
            f"in {self.seen:g} of the last {self.n} held-out comparisons what the policy does now was preferred to "
            f"what it did untrained; the reward expected {self.claimed:.0f}"
        )

    @property
    def z(self) -> float:
        """By how many standard deviations the newer clips are preferred less often than is claimed."""
        return (self.claimed - self.seen) / math.sqrt(self.variance) if self.variance > 0 else 0.0


def evidence(predicted: Iterable[float], seen: Iterable[float]) -> Evidence:
    """Of probabilities that the newer clip is preferred, and the mass that people gave it (1, 0.5 or 0)."""
    p, mu = np.array(list(predicted), np.float64), np.array(list(seen), np.float64)
    return Evidence(len(p), float(p.sum()), float(mu.sum()), float((p * (1 - p)).sum()))


def to_metrics(one: Evidence) -> dict[str, float]:
    """As plain numbers to store with the version."""
    if not one.n:
        return {}
    return {f"{PREFIX}{name}": float(getattr(one, name)) for name in ("n", "claimed", "seen", "variance")}


def window_to_metrics(window: Evidence) -> dict[str, float]:
    """What is looked at together, for those who show it."""
    if not window.n:
        return {}
    return {f"{PREFIX}window_{name}": float(getattr(window, name)) for name in ("n", "claimed", "seen")}


def window_words(metrics: Mapping[str, float]) -> str:
    """The same in a few words, or an empty string where nothing was held out."""
    n, claimed, seen = (metrics.get(f"{PREFIX}window_{name}", 0.0) for name in ("n", "claimed", "seen"))
    return f"newer clip preferred in {seen:g} of the last {n:.0f}; the reward expected {claimed:.0f}" if n else ""


def from_metrics(metrics: Mapping[str, float]) -> Evidence:
    """The way back; nothing from a version before which nobody answered any."""
    n, claimed, seen, variance = (metrics.get(f"{PREFIX}{name}", 0.0) for name in ("n", "claimed", "seen", "variance"))
    return Evidence(int(n), claimed, seen, variance)


def recent(each: Sequence[Evidence], window: int = WINDOW) -> Evidence:
    """The newest of them, as many as make up a window; those of one version stay together (oldest first)."""
    total = Evidence()
    for one in reversed(each):
        if total.n >= window:
            break
        total += one
    return total


def alarms(window: Evidence, before: bool) -> bool:
    """Whether the reward says that the policy has become better, and people do not.

    Args:
        window: The newest held-out comparisons.
        before: Whether there was an alarm at the last look; one that stands ends only where people agree again.
    """
    if before:
        return window.z > ENDS
    if not window.told or window.claimed < BETTER * window.n:
        return False
    return window.falls_short and window.z > BEGINS


@dataclass(frozen=True)
class Look:
    """What there was to see when a reward version was published."""

    env_steps: int
    window: Evidence
    alarm: bool


def looks(versions: Sequence[RewardVersion]) -> list[Look]:
    """One for each version with new evidence, oldest first."""
    told = [(version, one) for version in versions if (one := from_metrics(version.metrics)).n]
    each = [one for _, one in told]
    return [
        Look(version.env_steps, recent(each[: i + 1]), bool(version.metrics.get(ALARM, 0.0)))
        for i, (version, _) in enumerate(told)
    ]
