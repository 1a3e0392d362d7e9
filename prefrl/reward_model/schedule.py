"""How many comparisons should have been asked after how many agent steps (paper appendix A)."""

from __future__ import annotations

import math

from prefrl.config import LabelConfig


def n_initial(label: LabelConfig) -> int:
    """Comparisons asked about the untrained policy, before any learning."""
    if label.schedule == "upfront":
        return label.budget
    return max(1, min(label.budget, round(label.initial_fraction * label.budget)))


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
    first, rest = n_initial(label), label.budget - n_initial(label)
    if label.schedule == "upfront" or total_steps <= 0:  # a run may end with its untrained policy
        return label.budget
    done = min(1.0, env_steps / total_steps)
    if label.schedule == "paper":
        done = math.log1p(done * total_steps / label.tau) / math.log1p(total_steps / label.tau)
    return first + math.floor(rest * done + 1e-9)
