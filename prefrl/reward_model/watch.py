"""The reward role's watch over itself: asks comparisons that are held out, and compares them with what it predicts."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from prefrl.config import RunConfig
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.held_out import Evidence, evidence
from prefrl.reward_model.loss import log_preference
from prefrl.reward_model.schedule import held_out_scheduled
from prefrl.store.comparisons import active
from prefrl.store.engine import Database
from prefrl.store.held_out import n_held_out_asked
from prefrl.store.segments import load_segments
from prefrl.types import Comparison, Segment

N_CURRENT = 32  # segments of what the policy does now, over which members' disagreement is taken


def held_out_due(db: Database, run_id: int, config: RunConfig, learned_steps: int, learning_steps: int) -> int:
    """How many held-out comparisons are to be asked now, after so many of the steps in which the policy learns."""
    due = held_out_scheduled(config.label, learned_steps, learning_steps)
    return max(0, due - n_held_out_asked(db, run_id)) if due else 0


def draw_held_out(
    newer: list[int], older: list[int], n: int, asked: set[tuple[int, int]], rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Up to ``n`` distinct pairs of a newer and an older segment, uniformly, none of them in ``asked``.

    Args:
        newer: Ids of segments.
        older: Ids of others.
        n: How many.
        asked: Pairs, the lower id first.
        rng: Draws them.
    """
    n_pairs = len(newer) * len(older)
    drawn = rng.choice(n_pairs, size=min(n_pairs, n + len(asked)), replace=False)
    pairs = [(newer[k // len(older)], older[k % len(older)]) for k in drawn.tolist()]
    return [(a, b) for a, b in pairs if (min(a, b), max(a, b)) not in asked][:n]


def judge_held_out(
    db: Database, rows: list[Comparison], held_out: set[tuple[int, int]], ensemble: RewardEnsemble, noise: float
) -> Evidence:
    """What an ensemble predicts of the held-out comparisons among ``rows``, beside what was answered.

    Args:
        db: The database of the run.
        rows: Comparisons.
        held_out: All pairs that are held out, the lower id first.
        ensemble: Fitted to none of them.
        noise: Assumed by the prediction, as by the loss.
    """
    asked = [row for row in active(rows) if row.mu is not None and row.pair in held_out]
    segments = load_segments(db, {i for row in asked for i in row.pair})
    asked = [row for row in asked if row.segment_1 in segments and row.segment_2 in segments]
    if not asked:
        return Evidence()
    place = {id_: i for i, id_ in enumerate(segments)}
    sums = member_sums(ensemble, list(segments.values()))  # (M, S)
    z = sums[:, [place[row.segment_1] for row in asked]] - sums[:, [place[row.segment_2] for row in asked]]  # (M, B)
    return evidence(log_preference(z, noise).exp().mean(0).tolist(), [row.mu or 0.0 for row in asked])


def disagreement(ensemble: RewardEnsemble, segments: list[Segment], noise: float) -> float:
    """Mean over all pairs of the members' standard deviation of the predicted probability; NaN with less than two."""
    if len(segments) < 2:
        return math.nan
    sums = member_sums(ensemble, segments)
    first, second = np.triu_indices(len(segments), 1)
    return float(log_preference(sums[:, first] - sums[:, second], noise).exp().std(0, correction=0).mean())


def member_sums(ensemble: RewardEnsemble, segments: list[Segment]) -> Tensor:
    """Each member's sum of rewards over each segment, not normalised: (M, S)."""
    features = [ensemble.spaces.features(one.obs, one.act) for one in segments]
    obs, act = (torch.from_numpy(np.stack(x)) for x in zip(*features, strict=True))
    return ensemble.segment_rewards(obs, act).sum(-1)
