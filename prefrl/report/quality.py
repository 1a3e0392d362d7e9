"""How good the learned reward is: against the true reward, and against answers it has not seen.

The report may read the true reward; the reward role may not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
import torch
from numpy.typing import NDArray

from prefrl.config import RunConfig
from prefrl.report.numbers import spearman
from prefrl.reward_model.bootstrap import bags, bootstrap_weights
from prefrl.reward_model.dataset import stack_steps
from prefrl.reward_model.ensemble import RewardEnsemble, tensors_from_bytes
from prefrl.reward_model.loss import log_preference
from prefrl.reward_model.spaces import Spaces
from prefrl.store.comparisons import active
from prefrl.store.engine import Database
from prefrl.store.held_out import held_out_pairs
from prefrl.store.rewards import load_reward
from prefrl.store.runs import Run
from prefrl.store.schema import reward_version, reward_weights, segment, segment_truth
from prefrl.store.segments import load_segments, true_returns
from prefrl.types import Comparison

N_NEAREST = 256
BATCH = 64  # segments in memory at once; 64 of Atari are some 180 MB as floats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """One reward version against the true reward, on the segments recorded nearest to it.

    Attributes:
        correlation: Spearman's, of learned and true segment returns; NaN where one does not vary.
        learned: Learned segment returns, (S,).
        true: True segment returns, (S,).
    """

    version: int
    env_steps: int
    correlation: float
    learned: Floats
    true: Floats


@dataclass(frozen=True)
class HeldOut:
    """Predictions about comparisons by members that were not fitted to them.

    Attributes:
        version: The reward version that predicts.
        predicted: Probability that segment 1 is preferred, (B,), decided comparisons only.
        first: Whether it was, (B,).
        n_in_every_bag: Decided comparisons left out because every member was fitted to them.
    """

    version: int
    predicted: Floats
    first: NDArray[np.bool_]
    n_in_every_bag: int


@dataclass(frozen=True)
class Quality:
    """All reward versions that still have weights, oldest first, and the newest one's predictions."""

    agreements: tuple[Agreement, ...]
    held_out: HeldOut


def measure(db: Database, run: Run, config: RunConfig, rows: Sequence[Comparison]) -> Quality | None:
    """Load every version that has weights and measure it; None where there is none.

    Args:
        db: The run's database.
        run: The run.
        config: Its configuration.
        rows: The run's comparisons with all of their history.

    Raises:
        PrefrlError: Weights or segments cannot be read, or do not fit the run's settings.
    """
    versions = _versions_with_weights(db, run.id)
    if not versions:
        return None
    ensemble = RewardEnsemble(
        Spaces.from_dict(run.versions["spaces"]), dataclasses.replace(config.reward, device="cpu"), config.seed
    )
    ids, steps = _segments_with_truth(db, run.id)
    truths = true_returns(db, ids.tolist())
    agreements = []
    for version in versions:
        record, payload = load_reward(db, run.id, version)
        ensemble.load(tensors_from_bytes(payload))
        # one that was there from the start is judged by what the policy makes of it in the end
        at = record.env_steps if config.reward.source == "learned" else int(steps.max(initial=0))
        near = nearest(ids, steps, at)
        sums = scored(db, near, ensemble.reward)
        pairs = np.array([(float(sums[i]), truths[i]) for i in sums if i in truths], np.float64).reshape(-1, 2)
        learned, true = pairs[:, 0], pairs[:, 1]
        agreements.append(Agreement(version, at, spearman(learned, true), learned, true))
    held_out = held_out_pairs(db, run.id)
    return Quality(tuple(agreements), predict(db, ensemble, config, rows, record.version, record.last_seq, held_out))


def nearest(ids: NDArray[np.int64], steps: NDArray[np.int64], env_steps: int, n: int = N_NEAREST) -> list[int]:
    """Of segments recorded after ``steps`` agent steps, the ``n`` nearest to ``env_steps``; of equals the newest."""
    order = np.lexsort((-ids, np.abs(steps - env_steps)))
    return sorted(ids[order[:n]].tolist())


def scored(
    db: Database, ids: Sequence[int], score: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
) -> dict[int, Floats]:
    """Sum of a score over the steps of each segment; a pruned segment is left out.

    Args:
        db: The run's database.
        ids: Row ids of segments.
        score: From steps (N, *obs), (N, *act) to (…, N).
    """
    sums: dict[int, Floats] = {}
    for start in range(0, len(ids), BATCH):
        segments = load_segments(db, ids[start : start + BATCH])
        if not segments:
            continue
        values = score(*stack_steps(segments.values())).astype(np.float64)  # (…, N)
        ends = np.cumsum([len(s) for s in segments.values()])[:-1]
        for id_, part in zip(segments, np.split(values, ends, axis=-1), strict=True):
            sums[id_] = part.sum(-1)
    return sums


def predict(
    db: Database,
    ensemble: RewardEnsemble,
    config: RunConfig,
    rows: Sequence[Comparison],
    version: int,
    last_seq: int,
    held_out: Collection[tuple[int, int]] = (),
) -> HeldOut:
    """Predict each decided comparison of the window by the mean of the members that were not fitted to it.

    A member was not fitted to what is out of its bag, nor to what came after the version's last comparison, and none
    was to the pairs ``held_out`` (the lower id first).
    The assumed noise is part of the prediction (paper section 2.2.3), as it is of the loss.
    """
    stand = [c for c in active(rows) if c.mu is not None]
    decided = [c for c in stand[-config.reward.window :] if c.mu != 0.5]  # with a window of 0 all
    sums = scored(
        db,
        sorted({i for c in decided for i in (c.segment_1, c.segment_2)}),
        lambda obs, act: ensemble.member_rewards(obs, act).cpu().numpy(),
    )
    decided = [c for c in decided if c.segment_1 in sums and c.segment_2 in sums]
    if not decided:
        return HeldOut(version, np.empty(0), np.empty(0, np.bool_), 0)
    bag = bags(decided, rows)
    unseen = (bootstrap_weights(config.seed, ensemble.n_members, bag) == 0) | (bag > last_seq)  # (M, B)
    unseen |= np.array([c.pair in held_out for c in decided])
    z = np.stack([sums[c.segment_1] - sums[c.segment_2] for c in decided], axis=1)  # (M, B)
    probability = log_preference(torch.from_numpy(z), config.reward.noise).exp().numpy()
    some = unseen.any(0)
    predicted = np.where(unseen, probability, 0.0)[:, some].sum(0) / unseen[:, some].sum(0)  # (B,)
    first = np.array([c.mu == 1.0 for c in decided])[some]
    return HeldOut(version, predicted, first, int((~some).sum()))


def _versions_with_weights(db: Database, run_id: int) -> list[int]:
    statement = sa.select(reward_version.c.version).join_from(reward_version, reward_weights)
    statement = statement.where(reward_version.c.run_id == run_id).order_by(reward_version.c.version)
    with db.read() as connection:
        return list(connection.execute(statement).scalars())


def _segments_with_truth(db: Database, run_id: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    statement = sa.select(segment.c.id, segment.c.env_steps).join_from(segment, segment_truth)
    with db.read() as connection:
        rows = [tuple(row) for row in connection.execute(statement.where(segment.c.run_id == run_id))]
    table = np.array(rows, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
