"""The records that pass between the processes, and the legend of shapes.

Shape letters, used at line ends everywhere:
``B`` pairs, ``T`` steps of a segment, ``M`` members, ``N`` flattened steps, ``E`` environments,
``S`` segments.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Preference(enum.StrEnum):
    """What an annotator said about a pair, as it was shown (paper section 2.2.2)."""

    LEFT = "left"
    RIGHT = "right"
    TIE = "tie"
    INCOMPARABLE = "incomparable"
    WITHDRAWN = "withdrawn"  # an undo: a superseding row that takes an earlier answer back

    def mu(self, shown_left: int) -> float | None:
        """Probability mass on segment 1, or None where the answer does not train.

        Args:
            shown_left: 1 or 2, which segment of the pair was on the left.
        """
        if self is Preference.TIE:
            return 0.5
        if self in (Preference.INCOMPARABLE, Preference.WITHDRAWN):
            return None
        return float((self is Preference.LEFT) == (shown_left == 1))


@dataclass(frozen=True, eq=False)
class Segment:
    """``T`` consecutive (observation, action) pairs of one environment, without a reset inside.

    Attributes:
        obs: Raw observations before each action, shape (T, *obs). Of images, stacks of K frames, a read-only view over
            the T + K - 1 single ones: (T, K, H, W), uint8.
        act: Actions taken, shape (T, *act); float32 for Box, int64 for Discrete.
        states: Simulator states to draw the clip from, shape (T, n_state), or None. Of an Atari emulator only the one
            before the first action, from which the actions lead to the others: (1, n_bytes), uint8.
        env_index: Which of the parallel environments it comes from.
        episode: Running number of the episode in that environment.
        start: Time step of the episode at which it starts.
        env_steps: Agent steps of the whole run when it was recorded.
        source: ``initial`` (untrained policy), ``policy``, or ``import:`` and what it was where it came from.
    """

    obs: NDArray[Any]
    act: NDArray[Any]
    states: NDArray[Any] | None = None
    env_index: int = 0
    episode: int = 0
    start: int = 0
    env_steps: int = 0
    source: str = "policy"

    def __len__(self) -> int:
        return len(self.obs)

    @property
    def replayed(self) -> bool:
        """Whether its clip is played again from one state, an emulator's, instead of drawn from a state a step."""
        return self.states is not None and self.states.dtype == np.uint8 and len(self.states) == 1

    @cached_property
    def digest(self) -> str:
        """Content address: equal in every process for equal dtype, shape and bytes."""
        sha = hashlib.sha256()
        for array in (self.obs, self.act):
            sha.update(f"{array.dtype.str}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).tobytes())
        return sha.hexdigest()


MAX_NAME = 100  # signs of an annotator's name: an e-mail address of a proxy fits
TOLD = "true_returns"  # in a comparison's detail, where reward.objective is target: of segment 1 and of segment 2


@dataclass(frozen=True)
class Comparison:
    """One row of the database D of the paper: (segment 1, segment 2, mu).

    Attributes:
        seq: Gapless number in the run, in the order in which readers may see the rows.
        segment_1: Row id of the first segment.
        segment_2: Row id of the second segment.
        preference: The answer as shown.
        mu: Mass on segment 1 (1, 0.5 or 0); None where the row does not train.
        shown_left: 1 or 2: the segment that was on the left.
        annotator: Who answered.
        supersedes: ``seq`` of the row that this one replaces, or None.
        late: True where the query had been answered already: it trains, but no budget counts it.
    """

    seq: int
    segment_1: int
    segment_2: int
    preference: Preference
    mu: float | None
    shown_left: int
    annotator: str
    uuid: str
    query_id: int | None = None
    supersedes: int | None = None
    late: bool = False
    response_ms: int | None = None
    env_steps: int = 0
    detail: dict[str, Any] = field(default_factory=dict)
    created_ms: int = 0

    @property
    def pair(self) -> tuple[int, int]:
        """The two segments, the lower id first: what the comparison is about, whichever query asked."""
        return min(self.segment_1, self.segment_2), max(self.segment_1, self.segment_2)


@dataclass(frozen=True)
class Lease:
    """A query in the hands of one annotator until ``expires_ms`` (database clock)."""

    query_id: int
    token: str
    segment_1: int
    segment_2: int
    shown_left: int
    expires_ms: int


@dataclass(frozen=True)
class Answer:
    """What an annotator sends back; ``uuid`` is made by the client and makes sending idempotent."""

    query_id: int
    token: str
    preference: Preference
    annotator: str
    uuid: str
    response_ms: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RewardVersion:
    """One published ensemble.

    Attributes:
        version: 1, 2, 3, … in the run.
        last_seq: ``seq`` of the last comparison it was fitted to.
        env_steps: Agent steps of the run when it was published.
        metrics: Losses, accuracies and coefficients at publication.
    """

    version: int
    last_seq: int
    env_steps: int
    metrics: dict[str, float]
    created_ms: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """A stored policy: its agent steps and the sha256 of its weights."""

    id: int
    env_steps: int
    sha256: str
    meta: dict[str, Any]
    created_ms: int = 0
