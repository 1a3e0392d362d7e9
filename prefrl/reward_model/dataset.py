"""The comparisons and their segments as arrays, grown as rows arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prefrl.errors import RewardError
from prefrl.reward_model.bootstrap import bags
from prefrl.reward_model.spaces import Spaces
from prefrl.store.comparisons import active
from prefrl.types import TOLD, Comparison, Segment

CAPACITY = 256  # segments, at first


class PreferenceDataset:
    """The database D of the paper, as the fitting needs it.

    Args:
        spaces: The environment's spaces.
        segment_steps: Steps of each segment; others are refused by name.
        window: The newest comparisons that train; 0 means all. Segments of older ones alone are forgotten.
    """

    def __init__(self, spaces: Spaces, segment_steps: int, window: int = 0) -> None:
        self.spaces, self.segment_steps, self.window = spaces, segment_steps, window
        self.rows: list[Comparison] = []
        self._index: dict[int, int] = {}  # of the segments' ids, to rows of obs and act
        k, frame = spaces.n_stacked, spaces.obs_shape[1:]
        kept = ((segment_steps + k - 1, *frame), torch.uint8) if k else ((segment_steps, spaces.obs_dim), torch.float32)
        self._obs = torch.empty(CAPACITY, *kept[0], dtype=kept[1])
        self._act = torch.empty(CAPACITY, segment_steps, spaces.act_dim)
        self.obs, self.act = self._obs[:0], self._act[:0]  # (S, T, obs) or frames (S, T + K - 1, H, W); (S, T, act)
        self.pairs: NDArray[np.int64] = np.empty((0, 2), np.int64)  # (B, 2) rows of obs and act
        self.mu: NDArray[np.float32] = np.empty(0, np.float32)  # (B,)
        self.seqs: NDArray[np.int64] = np.empty(0, np.int64)  # (B,)
        self.bags: NDArray[np.int64] = np.empty(0, np.int64)  # (B,) see `prefrl.reward_model.bootstrap.bags`
        self.annotators: list[str] = []  # B names
        self.returns: NDArray[np.float32] = np.empty((0, 2), np.float32)  # (B, 2), NaN where no oracle told them
        self.last_seq = 0
        self.held_out: set[tuple[int, int]] = set()  # pairs whose comparisons are left out, the lower id first

    def __len__(self) -> int:
        """Comparisons that train."""
        return len(self.mu)

    def missing(self, rows: Iterable[Comparison]) -> list[int]:
        """Ids of the segments that must be loaded before ``extend(rows)``."""
        return sorted(_segments(self._train([*self.rows, *rows])) - self._index.keys())

    def extend(self, rows: list[Comparison], segments: Mapping[int, Segment]) -> None:
        """Append comparisons in order of seq; superseded and withdrawn rows leave the training set.

        Raises:
            RewardError: A segment has another length or shape than this run's.
        """
        if not rows:
            return
        for id_ in self.missing(rows):
            self._add_segment(id_, segments[id_])
        self.rows += rows
        self.last_seq = rows[-1].seq
        train = self._train(self.rows)
        for id_ in sorted(self._index.keys() - _segments(train)):
            self._forget_segment(id_)
        index = self._index
        self.pairs = np.array([(index[r.segment_1], index[r.segment_2]) for r in train], np.int64).reshape(-1, 2)
        self.mu = np.array([r.mu for r in train], np.float32)
        self.seqs = np.array([r.seq for r in train], np.int64)
        self.bags = bags(train, self.rows)
        self.annotators = [r.annotator for r in train]
        untold = (np.nan, np.nan)
        self.returns = np.array([r.detail.get(TOLD, untold) for r in train], np.float32).reshape(-1, 2)
        self.obs, self.act = self._obs[: len(index)], self._act[: len(index)]

    @property
    def n_held_out(self) -> int:
        """Decided comparisons that are left out because they are held out."""
        return sum(row.mu is not None and row.pair in self.held_out for row in active(self.rows))

    def held_out_since(self, seq: int) -> list[Comparison]:
        """The first answer that stands to each held-out pair about which nothing had been said up to ``seq``.

        What is said of the pair later, by an edit or when it is asked again, is no evidence of its own.
        """
        known = {row.pair for row in self.rows if row.seq <= seq}
        found: dict[tuple[int, int], Comparison] = {}
        for row in active(self.rows):
            if row.mu is not None and row.pair in self.held_out - known:
                found.setdefault(row.pair, row)
        return list(found.values())

    def _train(self, rows: Iterable[Comparison]) -> list[Comparison]:
        """Those that train: the newest that stand, were decided and are not held out."""
        stand = [row for row in active(rows) if row.mu is not None and row.pair not in self.held_out]
        return stand[-self.window :]  # with a window of 0 all

    def _add_segment(self, id_: int, segment: Segment) -> None:
        if len(segment) != self.segment_steps:
            raise RewardError(
                f"segment {id_} has {len(segment)} steps, but this run compares segments of {self.segment_steps}"
            )
        obs, act = (torch.from_numpy(x) for x in self.spaces.kept(segment.obs, segment.act))
        row = len(self._index)
        if row == len(self._obs):  # grown by doubling: a block of a new size each time would never be reused
            self._obs, self._act = (_doubled(x) for x in (self._obs, self._act))
        self._obs[row], self._act[row] = obs, act
        self._index[id_] = row

    def _forget_segment(self, id_: int) -> None:
        """The last row takes its place."""
        row, last = self._index.pop(id_), len(self._index)
        if row != last:
            moved = next(other for other, its_row in self._index.items() if its_row == last)
            self._obs[row], self._act[row] = self._obs[last], self._act[last]
            self._index[moved] = row


def _segments(rows: Iterable[Comparison]) -> set[int]:
    return {id_ for row in rows for id_ in (row.segment_1, row.segment_2)}


def _doubled(x: torch.Tensor) -> torch.Tensor:
    larger = x.new_empty(2 * len(x), *x.shape[1:])  # the new half costs no memory before it is written
    larger[: len(x)] = x
    return larger


def stack_features(spaces: Spaces, segments: Iterable[Segment]) -> tuple[torch.Tensor, torch.Tensor]:
    """Segments of the same length as they are kept (`Spaces.kept`): (S, T, obs_dim), (S, T, act_dim)."""
    kept = [spaces.kept(one.obs, one.act) for one in segments]
    obs, act = (torch.from_numpy(np.stack(x)) for x in zip(*kept, strict=True))
    return obs, act


def stack_steps(segments: Iterable[Segment]) -> tuple[NDArray[Any], NDArray[Any]]:
    """All steps of the segments one after the other: (N, *obs), (N, *act)."""
    listed = list(segments)
    return np.concatenate([s.obs for s in listed]), np.concatenate([s.act for s in listed])
