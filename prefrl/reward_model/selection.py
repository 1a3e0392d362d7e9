"""Which pairs to ask (paper section 2.2.4)."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prefrl.errors import ConfigError, describe
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.loss import log_preference


class Selector(Protocol):
    """A selector plug-in: ``(ensemble, obs (S, T, obs), act (S, T, act), candidates (C, 2), n) -> (n, 2)``.

    Of images ``obs`` is the segments' single frames, (S, T + K - 1, H, W), and ``act`` is (S, T, 0);
    ``ensemble.segment_rewards(obs, act)`` takes either.
    """

    def __call__(
        self, ensemble: RewardEnsemble, obs: Tensor, act: Tensor, candidates: NDArray[np.int64], n: int
    ) -> NDArray[np.int64]:
        """Return up to ``n`` rows of ``candidates``, best first."""


def choose(
    name: str,
    select: Selector,
    ensemble: RewardEnsemble,
    obs: Tensor,
    act: Tensor,
    candidates: NDArray[np.int64],
    n: int,
) -> list[tuple[int, int]]:
    """What a selector, maybe somebody's own, chooses.

    Raises:
        ConfigError: It fails, or returns something else than at most ``n`` different candidates.
    """
    try:
        chosen = [(int(a), int(b)) for a, b in np.asarray(select(ensemble, obs, act, candidates, n)).tolist()]
    except Exception as error:  # whatever a plug-in raises
        raise ConfigError(f"query.selector {name!r} failed: {describe(error)}") from error
    known = {(a, b) for a, b in candidates.tolist()}
    if len(chosen) > n or len(set(chosen)) < len(chosen) or not set(chosen) <= known:
        raise ConfigError(
            f"query.selector {name!r} must return at most n different rows of the candidates (n is {n} here), "
            "but returned more, one twice, or one that is none of them"
        )
    return chosen


def draw_candidates(
    n_segments: int, n: int, asked: set[tuple[int, int]], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Up to ``n`` distinct pairs (i < j) of different segments, uniformly, none of them in ``asked``: (C, 2)."""
    n_pairs = n_segments * (n_segments - 1) // 2
    n_draws = min(n_pairs, 2 * n + len(asked))
    flat = rng.choice(n_pairs, size=n_draws, replace=False)
    i, j = _unrank(flat, n_segments)
    flip = rng.random(n_draws) < 0.5  # which segment is stored first carries no information
    first, second = np.where(flip, j, i), np.where(flip, i, j)
    fresh = [
        (a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True) if (min(a, b), max(a, b)) not in asked
    ]
    return np.array(fresh[:n], np.int64).reshape(-1, 2)


def _unrank(flat: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair number -> (i, j), i < j, numbering the upper triangle row by row."""
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])
    i = np.searchsorted(starts, flat, side="right") - 1
    return i, flat - starts[i] + i + 1


def _differences(ensemble: RewardEnsemble, obs: Tensor, act: Tensor, pairs: NDArray[np.int64]) -> Tensor:
    sums = ensemble.segment_rewards(obs, act).sum(-1)  # (M, S)
    return sums[:, pairs[:, 0]] - sums[:, pairs[:, 1]]  # (M, C)


def by_probability(
    ensemble: RewardEnsemble, obs: Tensor, act: Tensor, candidates: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Highest variance over members of the predicted probability."""
    variance = torch.sigmoid(_differences(ensemble, obs, act, candidates)).var(0, correction=0)
    return _top(candidates, variance, n)


def by_logit(
    ensemble: RewardEnsemble, obs: Tensor, act: Tensor, candidates: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Highest variance over members of the difference of summed rewards."""
    return _top(candidates, _differences(ensemble, obs, act, candidates).var(0, correction=0), n)


def by_information(
    ensemble: RewardEnsemble, obs: Tensor, act: Tensor, candidates: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """Highest information about the members that is expected of the answer."""
    return _top(candidates, information(_differences(ensemble, obs, act, candidates), ensemble.noise), n)


def information(z: Tensor, noise: float) -> Tensor:
    """Mutual information of the answer and the member that is right, all being equally likely, in nats.

    ``H(mean over m of p_m) - mean over m of H(p_m)``, H being the entropy of an answer and p_m what member m predicts
    of it, the annotator's noise included (Houlsby et al. 2011, "Bayesian active learning for classification and
    preference learning"; Biyik et al. 2019, "Asking easy questions"). The first term alone is high, too, where all
    members are equally unsure, and no answer tells which of them is right.

    Args:
        z: Each member's difference of summed rewards, (M, C).
        noise: As in ``log_preference``.

    Returns:
        Of each pair, from 0 (members agree) to log 2 (half are sure of either answer, and there is no noise), (C,).
    """
    z = z.double()  # a difference of entropies: in single precision what is less than 1e-7 would be lost
    log_p = torch.stack([log_preference(z, noise), log_preference(-z, noise)])  # (2, M, C)
    log_mean = log_p.logsumexp(1) - math.log(len(z))  # (2, C)
    return _entropy(log_mean) - _entropy(log_p).mean(0)


def _entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(0)


def at_random(
    ensemble: RewardEnsemble, obs: Tensor, act: Tensor, candidates: NDArray[np.int64], n: int
) -> NDArray[np.int64]:
    """The first candidates, which are in random order already."""
    return candidates[:n]


def _top(candidates: NDArray[np.int64], score: Tensor, n: int) -> NDArray[np.int64]:
    best: NDArray[np.int64] = torch.argsort(score, descending=True, stable=True)[:n].cpu().numpy()
    return candidates[best]


SELECTORS: dict[str, Selector] = {"disagreement": by_probability, "information": by_information, "random": at_random}
