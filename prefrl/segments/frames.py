"""Stacks of frames, which slide by one frame a step, and the single frames that they are made of.

A stack is (K, H, W), the oldest frame first. Stored and kept in memory are single frames: a quarter of the bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import DataError


def to_frames(stacks: NDArray[Any]) -> NDArray[Any]:
    """The single frames of the stacks of consecutive steps: (T, K, H, W) -> (T + K - 1, H, W).

    Raises:
        DataError: A stack is not the one before it, moved on by one frame.
    """
    frames = np.concatenate([stacks[0], stacks[1:, -1]])
    slid = (stacks == to_stacks(frames, stacks.shape[1])).all(axis=(1, 2, 3))
    if not slid.all():
        raise DataError(
            f"the frames of step {int(np.argmin(slid))} are not those of the step before, moved on by one: an image is "
            "a stack of the newest frames, of shape (frames, height, width), the oldest first"
        )
    return frames


def to_stacks(frames: NDArray[Any], k: int) -> NDArray[Any]:
    """The stacks of ``k`` frames that consecutive frames make, without a copy: (T + k - 1, H, W) -> (T, k, H, W)."""
    return np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, k, axis=0), -1, 1)
