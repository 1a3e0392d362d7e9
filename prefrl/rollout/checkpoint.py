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


def pack(model: OnPolicyAlgorithm, normaliser: VecNormalize) -> bytes:
    """Policy, optimiser and the normaliser's statistics as safetensors bytes."""
    tensors = {f"policy.{k}": v.detach().cpu().contiguous().clone() for k, v in model.policy.state_dict().items()}
    for i, state in model.policy.optimizer.state_dict()["state"].items():
        for name, value in state.items():
            tensors[f"optimizer.{i}.{name}"] = torch.as_tensor(value).cpu().contiguous().clone()
    for kind, rms in _statistics(normaliser).items():
        tensors |= {
            f"normaliser.{kind}.mean": torch.from_numpy(np.array(rms.mean)),
            f"normaliser.{kind}.var": torch.from_numpy(np.array(rms.var)),
            f"normaliser.{kind}.count": torch.tensor([rms.count], dtype=torch.float64),
        }
    return tensors_to_bytes(tensors)


def unpack(payload: bytes, model: OnPolicyAlgorithm, normaliser: VecNormalize) -> None:
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
    for kind, rms in _statistics(normaliser).items():
        rms.mean = tensors[f"normaliser.{kind}.mean"].numpy()
        rms.var = tensors[f"normaliser.{kind}.var"].numpy()
        rms.count = float(tensors[f"normaliser.{kind}.count"][0])


def _statistics(normaliser: VecNormalize) -> dict[str, Any]:
    """The running statistics that the normaliser uses."""
    kinds = {"reward": normaliser.ret_rms}
    return {"obs": normaliser.obs_rms, **kinds} if normaliser.norm_obs else kinds
