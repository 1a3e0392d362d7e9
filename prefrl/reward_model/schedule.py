"""How many comparisons should have been asked after how many agent steps (paper appendix A)."""

from __future__ import annotations

import math

from prefrl.config import BUDGET, LabelConfig


def budget_of(label: LabelConfig) -> int:
    """Comparisons of the whole run."""
    return label.budget or BUDGET


def n_initial(label: LabelConfig) -> int:
    """Comparisons asked about the untrained policy, before any learning."""
    budget = budget_of(label)
    if label.schedule == "upfront":
        return budget
    return max(1, min(budget, round(label.initial_fraction * budget)))


def n_scheduled(label: LabelConfig, env_steps: int, total_steps: int) -> int:
    """Comparisons that should have been asked after ``env_steps`` agent steps.

    ``paper``: the rate after T steps is proportional to tau / (T + tau); integrated, with the initial
    share in front and the whole budget at the end:
    ``n0 + (N - n0) * ln(1 + T / tau) / ln(1 + T_end / tau)``.

    Args:
        label: Budget, initial share, schedule and tau (agent steps).
        env_steps: Agent steps so far (T).
        total_steps: Agent steps of the whole run (T_end).
    """
    budget, first = budget_of(label), n_initial(label)
    if label.schedule == "upfront" or total_steps <= 0:  # a run may end with its untrained policy
        return budget
    done = min(1.0, env_steps / total_steps)
    if label.schedule == "paper":
        done = math.log1p(done * total_steps / label.tau) / math.log1p(total_steps / label.tau)
    return first + math.floor((budget - first) * done + 1e-9)
