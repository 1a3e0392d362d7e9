from __future__ import annotations

import numpy as np
import pytest

from prefrl.errors import DataError
from prefrl.segments.frames import to_frames, to_stacks


def test_stacks_of_frames_are_the_newest_k_of_each_step() -> None:
    frames = np.arange(5)[:, None, None] * np.ones((1, 2, 3), np.int64)
    stacks = to_stacks(frames, 4)
    assert stacks.shape == (2, 4, 2, 3)
    assert stacks[:, :, 0, 0].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]


def test_frames_come_back_and_a_view_holds_only_them() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (28, 6, 7), dtype=np.uint8)
    stacks = to_stacks(frames, 4)
    assert np.array_equal(to_frames(stacks), frames)
    assert np.shares_memory(stacks, frames)


@pytest.mark.parametrize("size", [4, 5])
def test_the_channel_axis_in_another_place_is_refused_even_for_squares(size: int) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (10, size, size), dtype=np.uint8)
    last = np.moveaxis(to_stacks(frames, 4), 1, -1)  # (T, H, W, 4)
    with pytest.raises(DataError, match="stack of the newest frames"):
        to_frames(last)
