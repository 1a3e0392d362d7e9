"""Reward networks: all members of the ensemble in one batched forward (a leading member axis)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEAKY_SLOPE = 0.01  # paper appendix A.1


class RewardNet(Protocol):
    """A net plug-in: ``(n_members, obs_dim, act_dim, seed)`` to a module ``(M, N, obs), (M, N, act) -> (M, N)``."""

    def __call__(self, n_members: int, obs_dim: int, act_dim: int, *, seed: int, dropout: float) -> nn.Module:
        """Make the module; member m must start the same whatever ``n_members`` is."""


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
        generators = [torch.Generator().manual_seed((seed * 1_000_003 + m) % 2**63) for m in range(n_members)]
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


NETS = {"mlp": MLPEnsemble}
