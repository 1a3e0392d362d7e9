"""What the reward model must know of an environment; without torch, which takes seconds to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import RewardError

Features = NDArray[np.float32]


@dataclass(frozen=True)
class Spaces:
    """What the reward model must know of an environment's spaces.

    Attributes:
        obs_shape: Shape of an observation; three numbers are an image's: frames stacked, height, width.
        act_shape: Shape of a Box action; () for Discrete.
        n_actions: Number of Discrete actions, or None for Box.
    """

    obs_shape: tuple[int, ...]
    act_shape: tuple[int, ...]
    n_actions: int | None = None

    @property
    def n_stacked(self) -> int:
        """Frames in the stack that an observation is, oldest first; 0 where it is no image."""
        return self.obs_shape[0] if len(self.obs_shape) == 3 else 0

    @property
    def obs_dim(self) -> int:
        """Size of a flattened observation."""
        return int(np.prod(self.obs_shape))

    @property
    def act_dim(self) -> int:
        """Size of a flattened or one-hot action."""
        return self.n_actions or int(np.prod(self.act_shape))

    def __str__(self) -> str:
        action = f"{self.n_actions} actions" if self.n_actions else f"actions of shape {self.act_shape}"
        return f"observations of shape {self.obs_shape} and {action}"

    def features(self, obs: NDArray[Any], act: NDArray[Any]) -> tuple[Features, Features]:
        """Flatten to float32 features, Discrete actions one-hot: (N, obs_dim), (N, act_dim).

        Raises:
            RewardError: The shapes are not this environment's; names both.
        """
        obs, act = np.asarray(obs), np.asarray(act)
        for what, array, shape in (("observation", obs, self.obs_shape), ("action", act, self.act_shape)):
            if array.shape[1:] != shape:
                raise RewardError(f"the reward model takes {what}s of shape {shape}, but was given {array.shape[1:]}")
        n = len(obs)
        if len(act) != n:
            raise RewardError(f"there must be one action for each observation, but there are {len(act)} for {n}")
        flat_obs = np.ascontiguousarray(obs, np.float32).reshape(n, self.obs_dim)
        if self.n_actions is None:
            return flat_obs, np.ascontiguousarray(act, np.float32).reshape(n, self.act_dim)
        return flat_obs, np.eye(self.n_actions, dtype=np.float32)[np.asarray(act, np.int64)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the run's record."""
        return {"obs_shape": list(self.obs_shape), "act_shape": list(self.act_shape), "n_actions": self.n_actions}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spaces:
        """The inverse of ``to_dict``."""
        return cls(tuple(values["obs_shape"]), tuple(values["act_shape"]), values["n_actions"])
