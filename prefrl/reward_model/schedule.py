"""How many comparisons should have been asked after how many agent steps (paper appendix A)."""

from __future__ import annotations

import math

from prefrl.config import BUDGET, LabelConfig


def budget_of(label: LabelConfig) -> int:
    """Comparisons of the whole run."""
    return label.budget or BUDGET


def n_held_out(label: LabelConfig) -> int:
    """Comparisons of the budget that are never trained on."""
    return round((label.held_out_share or 0.0) * budget_of(label))


def n_initial(label: LabelConfig) -> int:
    """Comparisons asked about the untrained policy, before any learning."""
    budget = budget_of(label) - n_held_out(label)
    if label.schedule == "upfront":
        return budget
    return max(1, min(budget, round(label.initial_fraction * budget)))


def n_scheduled(label: LabelConfig, env_steps: int, total_steps: int) -> int:
    """Comparisons that should have been asked after ``env_steps`` agent steps, those held out among them.

    ``paper``: the rate after T steps is proportional to tau / (T + tau); integrated, with the initial
    share in front and the whole budget at the end:
    ``n0 + (N - n0) * ln(1 + T / tau) / ln(1 + T_end / tau)``.

    ``staircase``: the rate is lowered every tau steps only, and constant in between (paper, appendix A.2): after k
    stretches of tau steps it is ``1 / (k + 1)`` of the first one.

    Args:
        label: Budget, shares, schedule and tau (agent steps).
        env_steps: Agent steps so far (T).
        total_steps: Agent steps of the whole run (T_end).
    """
    if total_steps <= 0:  # a run may end with its untrained policy
        return budget_of(label)
    held_out = held_out_scheduled(label, env_steps, total_steps)
    budget, first = budget_of(label) - n_held_out(label), n_initial(label)
    done = min(1.0, env_steps / total_steps)
    if label.schedule == "paper":
        done = math.log1p(done * total_steps / label.tau) / math.log1p(total_steps / label.tau)
    elif label.schedule == "staircase":
        done = _climbed(done * total_steps / label.tau) / _climbed(total_steps / label.tau)
    return held_out + first + math.floor((budget - first) * done + 1e-9)


def held_out_scheduled(label: LabelConfig, env_steps: int, total_steps: int) -> int:
    """Of these, those never trained on: at a constant rate while the policy learns."""
    done = 1.0 if total_steps <= 0 else min(1.0, env_steps / total_steps)
    return math.floor(n_held_out(label) * done + 1e-9)


def _climbed(stretches: float) -> float:
    """Integral of the staircase's rate over so many stretches, the first one's being 1, then 1/2, 1/3 and so on."""
    whole = math.floor(stretches)
    return _harmonic(whole) + (stretches - whole) / (whole + 1)


def _harmonic(n: int) -> float:
    """1 + 1/2 + … + 1/n, to 1e-11: of many terms by Euler and Maclaurin's formula."""
    if n < 30:
        return math.fsum(1 / k for k in range(1, n + 1))
    return math.log(n) + 0.5772156649015329 + 1 / (2 * n) - 1 / (12 * n**2) + 1 / (120 * n**4)
