"""The reward role's watch over itself: asks comparisons that are held out, and compares them with what it predicts."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from prefrl.config import RunConfig
from prefrl.reward_model.dataset import stack_features
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.held_out import Evidence, evidence
from prefrl.reward_model.loss import log_preference
from prefrl.reward_model.schedule import held_out_scheduled
from prefrl.store.engine import Database
from prefrl.store.gold import gold_of
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


def judge_held_out(db: Database, answered: list[Comparison], ensemble: RewardEnsemble, noise: float) -> Evidence:
    """What an ensemble predicts of held-out comparisons, beside what was answered.

    Args:
        db: The database of the run.
        answered: Comparisons with a mu, each of another pair.
        ensemble: Fitted to none of them.
        noise: Assumed by the prediction, as by the loss.
    """
    segments = load_segments(db, {i for row in answered for i in row.pair})
    answered = [row for row in answered if segments.keys() >= set(row.pair)]
    if not answered:
        return Evidence()
    place = {id_: i for i, id_ in enumerate(segments)}
    sums = member_sums(ensemble, list(segments.values()))  # (M, S)
    older, newer = zip(*(row.pair for row in answered), strict=True)  # the untrained policy's have the lower ids
    z = sums[:, [place[i] for i in newer]] - sums[:, [place[i] for i in older]]  # (M, B)
    seen = [1.0 - one.mu for one in map(gold_of, answered) if one is not None]
    return evidence(log_preference(z, noise).exp().mean(0).tolist(), seen)


def disagreement(ensemble: RewardEnsemble, segments: list[Segment], noise: float) -> float:
    """Mean over all pairs of the members' standard deviation of the predicted probability; NaN with less than two."""
    if len(segments) < 2:
        return math.nan
    sums = member_sums(ensemble, segments)
    first, second = np.triu_indices(len(segments), 1)
    return float(log_preference(sums[:, first] - sums[:, second], noise).exp().std(0, correction=0).mean())


def member_sums(ensemble: RewardEnsemble, segments: list[Segment]) -> Tensor:
    """Each member's sum of rewards over each segment, not normalised: (M, S)."""
    return ensemble.segment_rewards(*stack_features(ensemble.spaces, segments)).sum(-1)
