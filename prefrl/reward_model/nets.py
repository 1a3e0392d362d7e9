"""Reward networks: all members of the ensemble in one batched forward (a leading member axis)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prefrl.reward_model.convolutions import CONVOLUTIONS, FILTERS, sides

LEAKY_SLOPE = 0.01  # paper appendix A
NORM_MOMENTUM, NORM_EPS = 0.1, 1e-5  # of batch norm; torch's own


class RewardNet(Protocol):
    """A net plug-in: ``(n_members, obs_dim, act_dim, seed)`` to a module ``(M, N, obs), (M, N, act) -> (M, N)``.

    Of images it is given the shape (K, H, W) as ``obs_dim``, 0 as ``act_dim``, and the module
    ``(M, N, K, H, W)`` from 0 to 1, the oldest frame first, and ``(M, N, 0)``.
    """

    def __call__(self, n_members: int, obs_dim: Any, act_dim: int, *, seed: int, dropout: float) -> nn.Module:
        """Make the module; member m must start the same whatever ``n_members`` is."""


def member_generators(n_members: int, seed: int) -> list[torch.Generator]:
    """Random numbers of each member's first weights, from (seed, m) alone."""
    return [torch.Generator().manual_seed((seed * 1_000_003 + m) % 2**63) for m in range(n_members)]


class BatchedLinear(nn.Module):
    """``M`` linear layers side by side: (M, N, n_in) -> (M, N, n_out)."""

    def __init__(self, n_in: int, n_out: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(n_in)  # torch.nn.Linear's own initialisation
        weights = [torch.empty(n_in, n_out).uniform_(-bound, bound, generator=g) for g in generators]
        biases = [torch.empty(1, n_out).uniform_(-bound, bound, generator=g) for g in generators]
        self.weight = nn.Parameter(torch.stack(weights))  # (M, n_in, n_out)
        self.bias = nn.Parameter(torch.stack(biases))  # (M, 1, n_out)

    def forward(self, x: Tensor) -> Tensor:
        """Apply each member's layer to its own rows."""
        return torch.baddbmm(self.bias, x, self.weight)


class MLPEnsemble(nn.Module):
    """Two hidden layers of 64 leaky-ReLU units for each member (paper appendix A.1).

    Args:
        n_members: Networks in the ensemble.
        obs_dim: Size of a flattened observation.
        act_dim: Size of a flattened (one-hot for Discrete) action.
        seed: Member m is initialised from (seed, m) alone.
        dropout: Probability after each hidden layer, active in train mode only.
    """

    def __init__(
        self, n_members: int, obs_dim: int, act_dim: int, *, seed: int, dropout: float = 0.0, hidden: int = 64
    ) -> None:
        super().__init__()
        generators = member_generators(n_members, seed)
        sizes = (obs_dim + act_dim, hidden, hidden, 1)
        self.layers = nn.ModuleList(BatchedLinear(n_in, n_out, generators) for n_in, n_out in itertools.pairwise(sizes))
        self.dropout = dropout

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Reward of each step: (M, N, obs), (M, N, act) -> (M, N)."""
        x = torch.cat([obs, act], dim=-1)
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), LEAKY_SLOPE, inplace=True)
            if self.dropout:
                x = F.dropout(x, self.dropout, self.training)
        return self.layers[-1](x).squeeze(-1)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped


class BatchedConv(nn.Module):
    """``M`` convolutions side by side, each with batch norm (paper, appendix A.2).

    One member at a time: a grouped convolution over all of them is slower on a processor.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n_in: int, size: int, stride: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(n_in * size**2)  # torch.nn.Conv2d's own initialisation
        shape, norm = (FILTERS, n_in, size, size), (len(generators), FILTERS)
        weights = [torch.empty(shape).uniform_(-bound, bound, generator=g) for g in generators]
        self.weight = nn.Parameter(torch.stack(weights))  # (M, F, C, size, size)
        self.gain = nn.Parameter(torch.ones(norm))  # (M, F)
        self.bias = nn.Parameter(torch.zeros(norm))  # (M, F)
        self.register_buffer("running_mean", torch.zeros(norm))
        self.register_buffer("running_var", torch.ones(norm))
        self.stride = stride

    def forward(self, x: Tensor, member: int) -> Tensor:
        """Apply one member's layer: (N, C, H, W) -> (N, F, H', W').

        The batch's own statistics count in train mode, which moves the running ones; else the running ones.
        """
        return F.batch_norm(
            F.conv2d(x, self.weight[member], stride=self.stride),
            self.running_mean[member],
            self.running_var[member],
            self.gain[member],
            self.bias[member],
            self.training,
            NORM_MOMENTUM,
            NORM_EPS,
        )


class CNNEnsemble(nn.Module):
    """Convolutions with leaky ReLUs, 64 units and the reward, for each member (paper, appendix A.2).

    Args:
        n_members: Networks in the ensemble.
        obs_dim: Shape of an image, (K, H, W).
        act_dim: 0.
        seed: Member m is initialised from (seed, m) alone.
        dropout: Probability after each convolution, active in train mode only.
        net: A name of `prefrl.reward_model.convolutions.CONVOLUTIONS`.
    """

    def __init__(
        self, n_members: int, obs_dim: tuple[int, int, int], act_dim: int, *, seed: int, dropout: float, net: str
    ) -> None:
        super().__init__()
        generators = member_generators(n_members, seed)
        n_in = (obs_dim[0], *[FILTERS] * (len(CONVOLUTIONS[net]) - 1))
        self.convolutions = nn.ModuleList(
            BatchedConv(n, size, stride, generators) for n, (size, stride) in zip(n_in, CONVOLUTIONS[net], strict=True)
        )
        height, width = (sides(net, pixels)[-1] for pixels in obs_dim[1:])
        sizes = (FILTERS * height * width, 64, 1)
        self.layers = nn.ModuleList(BatchedLinear(n_in, n_out, generators) for n_in, n_out in itertools.pairwise(sizes))
        self.dropout = dropout

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        """Reward of each step: (M, N, K, H, W), (M, N, 0) -> (M, N)."""
        x = torch.stack([self._convolve(x, member) for member, x in enumerate(obs)])
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), LEAKY_SLOPE, inplace=True)
        return self.layers[-1](x).squeeze(-1)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped

    def _convolve(self, x: Tensor, member: int) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last if self.training else torch.contiguous_format)
        for layer in self.convolutions:
            x = F.leaky_relu(layer(x, member), LEAKY_SLOPE, inplace=True)
            if self.dropout and self.training:
                x = drop(x, self.dropout)
        return x.flatten(1)


def drop(x: Tensor, p: float) -> Tensor:
    """Dropout with ``p`` rounded to a 256th: a random byte for each value, where torch's own draws eight."""
    kept = round((1 - p) * 256)
    drawn = torch.empty(-(-x.numel() // 8), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    mask = drawn.view(torch.uint8)[: x.numel()] <= kept - 1
    return x * mask.as_strided(x.shape, x.stride()) * (256 / kept)  # in the order of x in memory


NETS: dict[str, RewardNet] = {"mlp": MLPEnsemble, **{name: partial(CNNEnsemble, net=name) for name in CONVOLUTIONS}}
