"""The ensemble with all that inference needs: input statistics, members, normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from prefrl.config import RewardConfig
from prefrl.errors import RewardError
from prefrl.registry import find
from prefrl.reward_model.convolutions import refuse_net
from prefrl.reward_model.nets import NETS
from prefrl.reward_model.spaces import Spaces

STD_FLOOR = 1e-6
SEGMENTS_AT_ONCE = 64  # memory is bounded, and what a part needs stays in the cache of the processor
IMAGES_AT_ONCE = 100  # steps


def resolve_device(name: str) -> torch.device:
    """``auto`` is CUDA where there is one.

    Raises:
        RewardError: cuda was asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise RewardError("the device is set to cuda, but torch finds no CUDA device; use cpu or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


class RewardEnsemble(nn.Module):
    """M reward networks and the statistics around them, saved and loaded as one.

    Inputs are standardised with statistics of the first random-policy segments, frozen from then on; those that are
    images are divided by 255 instead, and their reward is of the frames alone (paper, appendix A.2).
    Each member is normalised by itself over the segments compared so far, then the members are averaged
    (paper section 2.2.3), and the average is scaled to ``output_std``. The paper does not say over which data;
    over what the policy did last, a policy that does well would find the same reward on ever another scale.

    Args:
        spaces: The environment's spaces.
        config: Net, members, dropout, output_std, and the noise, which selectors go by.
        seed: Seed of the run; decides the members' first weights.
    """

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor
    member_mean: Tensor
    member_std: Tensor
    scale: Tensor

    def __init__(self, spaces: Spaces, config: RewardConfig, seed: int) -> None:
        super().__init__()
        self.spaces, self.n_members, self.output_std = spaces, config.n_members, config.output_std
        self.noise = config.noise
        make = find("net", config.net, NETS)
        refuse_net(config.net, spaces)
        obs_dim = spaces.obs_shape if spaces.n_stacked else spaces.obs_dim
        self.net = make(config.n_members, obs_dim, spaces.act_dim, seed=seed, dropout=config.dropout)
        inputs = (
            ("obs_mean", spaces.obs_dim, 0.0),
            ("obs_std", spaces.obs_dim, 1.0),
            ("act_mean", spaces.act_dim, 0.0),
            ("act_std", spaces.act_dim, 1.0),
        )
        for name, size, value in (
            *(() if spaces.n_stacked else inputs),
            ("member_mean", config.n_members, 0.0),
            ("member_std", config.n_members, 1.0),
            ("scale", 1, 1.0),
        ):
            self.register_buffer(name, torch.full((size,), value))
        self.to(resolve_device(config.device)).eval()

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return self.scale.device

    def set_input_statistics(self, obs: NDArray[Any], act: NDArray[Any]) -> None:
        """Freeze the input standardisation, from random-policy steps (N, *obs), (N, *act); not for images."""
        for name, x in zip(("obs", "act"), self.spaces.features(obs, act), strict=True):
            std, mean = torch.std_mean(torch.from_numpy(x).double(), dim=0, correction=0)
            if name == "act" and self.spaces.n_actions:  # one-hot columns are on one scale already
                std, mean = torch.ones_like(std), torch.zeros_like(mean)
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_std").copy_(torch.where(std < STD_FLOOR, torch.ones_like(std), std))

    def inputs(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """What the nets see of segments, on their device.

        Args:
            obs: As kept (`Spaces.kept`): features (…, T, obs_dim), or single frames (…, T + K - 1, H, W).
            act: Features (…, T, act_dim).

        Returns:
            Standardised features of the same shapes; or stacks of frames (…, T, K, H, W), from 0 to 1, and ``act``.
        """
        obs, act = obs.to(self.device), act.to(self.device)
        if k := self.spaces.n_stacked:
            stacks = obs.unfold(-3, k, 1)  # (…, T, H, W, K): in memory, too, as convolutions are fitted fastest
            return stacks.to(torch.float32).div_(255).movedim(-1, -3), act
        return (obs - self.obs_mean) / self.obs_std, (act - self.act_mean) / self.act_std

    def member_rewards(self, obs: NDArray[Any], act: NDArray[Any]) -> Tensor:
        """Each member's reward of each step, not normalised: (N, *obs), (N, *act) -> (M, N)."""
        rows, actions = (torch.from_numpy(x) for x in self.spaces.features(obs, act))
        if self.spaces.n_stacked:  # each a segment of one step
            return self.segment_rewards(rows, actions[:, None])[..., 0]
        with torch.inference_mode():
            inputs = [x.expand(self.n_members, *x.shape) for x in self.inputs(rows, actions)]
            return self.net(*inputs)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    def segment_rewards(self, obs: Tensor, act: Tensor) -> Tensor:
        """Each member's reward of each step, not normalised: segments as kept (S, T, …) -> (M, S, T)."""
        parts = []
        n = max(1, IMAGES_AT_ONCE // act.shape[1]) if self.spaces.n_stacked else SEGMENTS_AT_ONCE
        with torch.no_grad():
            for part in zip(torch.split(obs, n), torch.split(act, n), strict=True):
                inputs = [x.flatten(0, 1) for x in self.inputs(*part)]
                steps = self.net(*(x.expand(self.n_members, *x.shape) for x in inputs))  # (M, S' * T)
                parts.append(steps.reshape(self.n_members, *part[1].shape[:2]))
        return torch.cat(parts, dim=1)

    def normalise(self, rewards: Tensor) -> None:
        """Recompute the normalisation over steps of segments, from what ``segment_rewards`` gives, (M, S, T).

        Call it whenever the members have changed. No segments leave it as it is.
        """
        if not rewards.numel():
            return
        raw = rewards.flatten(1).double()  # (M, N)
        std, mean = torch.std_mean(raw, dim=1, correction=0)
        std = torch.where(std < STD_FLOOR, torch.ones_like(std), std)  # a constant is not blown up to noise
        average = ((raw - mean[:, None]) / std[:, None]).mean(0)
        self.member_mean.copy_(mean)
        self.member_std.copy_(std)
        spread = float(average.std(correction=0))
        self.scale.fill_(self.output_std / (spread if spread > STD_FLOOR else 1.0))

    def reward(self, obs: NDArray[Any], act: NDArray[Any]) -> NDArray[np.float32]:
        """The learned reward of each step, as the policy sees it: (N, *obs), (N, *act) -> (N,)."""
        raw = self.member_rewards(obs, act)
        average = ((raw - self.member_mean[:, None]) / self.member_std[:, None]).mean(0)
        return (average * self.scale).cpu().numpy()

    def to_tensors(self) -> dict[str, Tensor]:
        """All weights and statistics, by name."""
        return {f"ensemble.{name}": t.detach().cpu().contiguous() for name, t in self.state_dict().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take weights and statistics from ``to_tensors``' names.

        Raises:
            RewardError: A tensor is missing or has another shape; nothing is changed then.
        """
        prefix = "ensemble."
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        found = {k: tuple(v.shape) for k, v in state.items()}
        expected = {k: tuple(v.shape) for k, v in self.state_dict().items()}
        if found != expected:
            wrong = sorted(k for k in found.keys() | expected.keys() if found.get(k) != expected.get(k))
            raise RewardError(
                "these reward weights do not fit this run's settings: "
                + "; ".join(f"{k} is {found.get(k, 'missing')}, expected {expected.get(k, 'none')}" for k in wrong[:3])
            )
        self.load_state_dict(state)


def tensors_to_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Serialise named tensors as safetensors (no pickle)."""
    return save_tensors(tensors)


def tensors_from_bytes(payload: bytes) -> dict[str, Tensor]:
    """Read safetensors bytes.

    Raises:
        RewardError: The bytes are not safetensors.
    """
    try:
        return load_tensors(payload)
    except Exception as error:  # safetensors raises several kinds
        raise RewardError(f"stored weights cannot be read: {error}") from error
