"""The learned reward of a few steps at a time, between two steps of a simulator: numpy calls, not torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.nets import LEAKY_SLOPE, BatchedLinear, MLPEnsemble

RewardFn = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float32]]


def stepwise(ensemble: RewardEnsemble) -> RewardFn:
    """``ensemble.reward``, as it is now, for batches of a few steps: (N, *obs), (N, *act) -> (N,).

    Between two steps of a simulator torch's calls cost more than their arithmetic (0.3 ms against 0.05 ms
    for numpy's, measured on a rollout of four environments). Nets of other kinds than the built-in one, and
    weights on a GPU, are called as they are.
    """
    net = ensemble.net
    layers = [layer for layer in getattr(net, "layers", ()) if isinstance(layer, BatchedLinear)]
    if type(net) is not MLPEnsemble or len(layers) != 3 or ensemble.device.type != "cpu":
        return ensemble.reward
    spaces, n_members = ensemble.spaces, ensemble.n_members
    mean = np.concatenate([ensemble.obs_mean.numpy(), ensemble.act_mean.numpy()])
    std = np.concatenate([ensemble.obs_std.numpy(), ensemble.act_std.numpy()])
    member_mean, member_std = ensemble.member_mean.numpy()[:, None].copy(), ensemble.member_std.numpy()[:, None].copy()
    scale = ensemble.scale.numpy().copy()
    (w1, b1), (w2, b2), (w3, b3) = (
        (layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in layers
    )
    hidden = w1.shape[2]
    w1 = np.ascontiguousarray(w1.transpose(1, 0, 2)).reshape(len(mean), -1)  # all members see the same input
    b1 = b1.reshape(-1)

    def reward(obs: NDArray[Any], act: NDArray[Any]) -> NDArray[np.float32]:
        x = (np.concatenate(spaces.features(obs, act), axis=1) - mean) / std  # (N, obs + act)
        x = _leaky_relu(x @ w1 + b1).reshape(len(x), n_members, hidden).transpose(1, 0, 2)  # (M, N, H)
        x = _leaky_relu(x @ w2 + b2)
        raw = (x @ w3 + b3)[..., 0]  # (M, N)
        average: NDArray[np.float32] = ((raw - member_mean) / member_std).mean(0) * scale
        return average

    return reward


def _leaky_relu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    y: NDArray[np.float32] = np.maximum(x, x * np.float32(LEAKY_SLOPE))
    return y
