"""What was observed, step by step; of stacked frames each single one once, a quarter of the bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefrl.errors import EnvError
from prefrl.segments.frames import to_stacks


class Observed:
    """The observations of the newest steps of every environment.

    Args:
        n_stacked: Frames in the stack that an observation is, oldest first; 0 where it is no image.
    """

    def __init__(self, n_stacked: int) -> None:
        self._k = n_stacked
        self._kept: list[NDArray[Any]] = []  # (E, *obs), or of images (E, H, W)
        self._dropped = 0  # how many of them are gone
        self._at: list[int] = []  # of each step the number of what was kept last

    def see(self, obs: NDArray[Any], before: NDArray[Any] | None) -> None:
        """Take the observations that come next, (E, *obs); they are not copied.

        Args:
            obs: What the next action is for.
            before: The ones before them, or None after a reset.

        Raises:
            EnvError: A stack of frames is not the one before, moved on by one.
        """
        if not self._k:
            self._kept.append(obs)
        elif before is None:
            self._kept += list(np.moveaxis(obs, 1, 0).copy())
        elif np.array_equal(obs[:, :-1], before[:, 1:]):
            self._kept.append(obs[:, -1].copy())  # not a view, which would keep the whole stack
        else:
            raise EnvError(
                "an image is not the one before it, moved on by one frame: observations must be stacks of the newest "
                "frames, of shape (frames, height, width), the oldest first"
            )

    def act(self) -> None:
        """Note a step: an action for what was seen last."""
        self._at.append(self._dropped + len(self._kept) - 1)

    def drop(self, n: int) -> None:
        """Forget the oldest ``n`` steps, and what no other step needs."""
        del self._at[:n]
        newest = self._dropped + len(self._kept) - 1
        n_needless = (self._at[0] if self._at else newest) - max(self._k - 1, 0) - self._dropped
        del self._kept[:n_needless]
        self._dropped += n_needless

    def cut(self, start: int, n: int, env: int) -> NDArray[Any]:
        """A copy of the observations of ``n`` steps from ``start`` on, (n, *obs); stacks are a view over its frames."""
        steps = [self._at[t] - self._dropped for t in range(start, start + n)]
        if not self._k:
            return np.stack([self._kept[i][env] for i in steps])
        frames = range(steps[0] - self._k + 1, steps[-1] + 1)
        return to_stacks(np.stack([self._kept[i][env] for i in frames]), self._k)
