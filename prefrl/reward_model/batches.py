"""Batches of queries that are not alike: the answers to two near-duplicates tell little more than one of them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prefrl.reward_model.ensemble import RewardEnsemble

WIDER = 2  # times as many pairs as are asked, to leave out of


def unlike(
    ensemble: RewardEnsemble, obs: Tensor, act: Tensor, best: list[tuple[int, int]], n: int
) -> list[tuple[int, int]]:
    """The ``n`` of the best pairs that remain when those that are most alike are left out, in their order.

    Args:
        ensemble: For the standardisation of its inputs.
        obs: Of the segments, as kept (`Spaces.kept`), (S, T, …).
        act: Features of the segments, (S, T, act_dim).
        best: Pairs of rows of ``obs`` and ``act``, best first; the first one always remains.
        n: At least 1.
    """
    if len(best) <= n:
        return best
    rows, place = np.unique(best, return_inverse=True)
    distances = pair_distances(summaries(ensemble, obs[rows], act[rows]), place.reshape(-1, 2))
    return [best[i] for i in eliminate(distances, n)]


def summaries(ensemble: RewardEnsemble, obs: Tensor, act: Tensor) -> Tensor:
    """Mean and standard deviation over a segment's steps of every input, as the reward nets see it: (S, 2 * inputs).

    A segment's reward is a sum over its steps, so that only which steps it has can matter, not their order; the two
    moments say that in short. The members' rewards would say less: what a model cannot tell apart yet may differ, and
    to ask about both is then no waste. Of images the two moments are of each pixel over the segment's single frames.
    """
    if ensemble.spaces.n_stacked:
        steps = obs.to(ensemble.device).flatten(2).double() / 255
    else:
        steps = torch.cat(ensemble.inputs(obs, act), dim=-1).double()
    std, mean = torch.std_mean(steps, dim=1, correction=0)
    return torch.cat([mean, std], dim=1)


def pair_distances(segments: Tensor, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Distance of every two pairs: of their segments, matched to be nearest. A metric; (a, b) and (b, a) are the same.

    Where the reward is linear in known features, the difference of a pair's segments tells pairs apart (Biyik and
    Sadigh 2018). That of a network is not: the same difference elsewhere is another question.

    Args:
        segments: A vector of each segment, (S, D).
        pairs: Rows of ``segments``, (K, 2).

    Returns:
        Sums of two Euclidean distances, (K, K).
    """
    first, second = segments[pairs[:, 0]], segments[pairs[:, 1]]  # (K, D)
    straight = _distances(first, first) + _distances(second, second)
    crossed = _distances(first, second) + _distances(second, first)
    return torch.minimum(straight, crossed).cpu().numpy()


def _distances(x: Tensor, y: Tensor) -> Tensor:
    # by default through products, which lose what is small against the vectors' lengths
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def eliminate(distance: NDArray[np.float64], n: int) -> list[int]:
    """Which ``n`` of K remain when the worse of the two that are nearest to each other is left out, again and again.

    Successive elimination (Biyik and Sadigh 2018, "Batch active preference-based learning of reward functions").

    Args:
        distance: Distance of every two, (K, K), the best first.
        n: At least 1.
    """
    to_better = np.where(np.triu(np.ones_like(distance), 1) > 0, distance, np.inf)  # [i, j] only where i is better
    kept = list(range(len(distance)))
    while len(kept) > n:
        nearest = to_better.min(0)[::-1]
        out = len(nearest) - 1 - int(nearest.argmin())  # the worst of those that are equally near to a better one
        to_better[out, :] = to_better[:, out] = np.inf
        kept.remove(out)
    return kept
