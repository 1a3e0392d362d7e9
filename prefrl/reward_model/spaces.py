"""What the reward model must know of an environment; without torch, which takes seconds to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import RewardError
from prefrl.segments.frames import to_frames

LAYOUT = "uint8 frames, the oldest first, height, width"  # of an image, in the run's record


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
        """Size of a flattened or one-hot action; 0 with images, whose reward is of the frames alone (paper, note 1)."""
        return 0 if self.n_stacked else self.n_actions or int(np.prod(self.act_shape))

    @property
    def layout(self) -> str:
        """What an observation is, in words."""
        return f"of shape {self.obs_shape}" + (f" ({LAYOUT})" if self.n_stacked else "")

    def __str__(self) -> str:
        action = f"{self.n_actions} actions" if self.n_actions else f"actions of shape {self.act_shape}"
        return f"observations of shape {self.obs_shape} and {action}"

    def kept(self, obs: NDArray[Any], act: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """What is kept in memory of a segment: features of its steps, or its single frames.

        Args:
            obs: Observations of consecutive steps, (T, *obs).
            act: Actions, (T, *act).

        Returns:
            (T, obs_dim) and (T, act_dim); of images (T + K - 1, H, W) uint8 and (T, 0).

        Raises:
            RewardError: The shapes, or an image's dtype, are not this environment's; names both.
            DataError: Stacks of frames are not each the one before, moved on by one frame.
        """
        if not self.n_stacked:
            return self.features(obs, act)
        obs, act = self._checked(obs, act)
        return to_frames(obs), np.empty((len(act), 0), np.float32)

    def features(self, obs: NDArray[Any], act: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Flatten to float32 features, Discrete actions one-hot: (N, obs_dim), (N, act_dim).

        Images stay as they are, (N, K, H, W) uint8, and have no features of actions, (N, 0).

        Raises:
            RewardError: The shapes, or an image's dtype, are not this environment's; names both.
        """
        obs, act = self._checked(obs, act)
        n = len(obs)
        if self.n_stacked:
            return np.require(obs, requirements=["C", "W"]), np.empty((n, 0), np.float32)
        flat_obs = np.ascontiguousarray(obs, np.float32).reshape(n, self.obs_dim)
        if self.n_actions is None:
            return flat_obs, np.ascontiguousarray(act, np.float32).reshape(n, self.act_dim)
        return flat_obs, np.eye(self.n_actions, dtype=np.float32)[np.asarray(act, np.int64)]

    def _checked(self, obs: NDArray[Any], act: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        obs, act = np.asarray(obs), np.asarray(act)
        for what, array, shape in (("observation", obs, self.obs_shape), ("action", act, self.act_shape)):
            if array.shape[1:] != shape:
                raise RewardError(f"the reward model takes {what}s of shape {shape}, but was given {array.shape[1:]}")
        if self.n_stacked and obs.dtype != np.uint8:
            raise RewardError(f"the reward model takes images {self.layout}, but was given {obs.dtype}")
        if len(act) != len(obs):
            raise RewardError(f"there must be one action for each observation, but there are {len(act)} for {len(obs)}")
        return obs, act

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for the run's record; the layout of images among them."""
        values = {"obs_shape": list(self.obs_shape), "act_shape": list(self.act_shape), "n_actions": self.n_actions}
        return values | ({"layout": LAYOUT} if self.n_stacked else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spaces:
        """The inverse of ``to_dict``.

        Raises:
            RewardError: The record is of images in another layout.
        """
        spaces = cls(tuple(values["obs_shape"]), tuple(values["act_shape"]), values["n_actions"])
        layout = values.get("layout")
        if layout != spaces.to_dict().get("layout"):
            raise RewardError(
                f"the run's record has observations of shape {spaces.obs_shape} in the layout {layout!r}, but this "
                f"prefrl knows images as {LAYOUT!r} alone: use the version that the run began with"
            )
        return spaces
