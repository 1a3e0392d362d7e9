"""Policy checkpoints: tensors and JSON, never a pickled object."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from prefrl.errors import StoreError
from prefrl.reward_model.ensemble import tensors_from_bytes, tensors_to_bytes


def pack(model: OnPolicyAlgorithm, normaliser: VecNormalize | None) -> bytes:
    """Policy, optimiser and observation statistics as safetensors bytes."""
    tensors = {f"policy.{k}": v.detach().cpu().contiguous().clone() for k, v in model.policy.state_dict().items()}
    for i, state in model.policy.optimizer.state_dict()["state"].items():
        for name, value in state.items():
            tensors[f"optimizer.{i}.{name}"] = torch.as_tensor(value).cpu().contiguous().clone()
    if normaliser is not None:
        rms: Any = normaliser.obs_rms
        tensors |= {
            "normaliser.mean": torch.from_numpy(np.array(rms.mean)),
            "normaliser.var": torch.from_numpy(np.array(rms.var)),
            "normaliser.count": torch.tensor([rms.count], dtype=torch.float64),
        }
    return tensors_to_bytes(tensors)


def unpack(payload: bytes, model: OnPolicyAlgorithm, normaliser: VecNormalize | None) -> None:
    """Put the bytes of ``pack`` back into a learner and normaliser of the same settings.

    Raises:
        StoreError: The weights do not fit; names the first tensor that differs.
    """
    tensors = tensors_from_bytes(payload)
    policy = {k.removeprefix("policy."): v for k, v in tensors.items() if k.startswith("policy.")}
    expected = {k: tuple(v.shape) for k, v in model.policy.state_dict().items()}
    found = {k: tuple(v.shape) for k, v in policy.items()}
    if found != expected:
        name = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))[0]
        raise StoreError(
            f"the checkpoint does not fit this run's policy: {name} is {found.get(name, 'missing')}, "
            f"expected {expected.get(name, 'none')}"
        )
    model.policy.load_state_dict(policy)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, i, name = key.split(".", 2)
            state.setdefault(int(i), {})[name] = value
    optimizer = model.policy.optimizer
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if normaliser is not None:
        rms: Any = normaliser.obs_rms
        rms.mean = tensors["normaliser.mean"].numpy()
        rms.var = tensors["normaliser.var"].numpy()
        rms.count = float(tensors["normaliser.count"][0])
