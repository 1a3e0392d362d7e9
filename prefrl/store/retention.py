"""Which of many snapshots to keep: the newest, and a ladder over the whole run."""

from __future__ import annotations

from collections.abc import Sequence


def milestones(steps: Sequence[int], total: int, newest: int = 3, marks: int = 20) -> set[int]:
    """Positions in ``steps`` to keep: the newest few, and the first in each twentieth of the run.

    Args:
        steps: Agent steps of each snapshot, ascending.
        total: Agent steps of the whole run.
        newest: How many of the last to keep.
        marks: Into how many parts the run is divided.
    """
    keep = set(range(max(0, len(steps) - newest), len(steps)))
    seen: set[int] = set()
    for position, step in enumerate(steps):
        mark = step * marks // max(1, total)
        if mark not in seen:
            seen.add(mark)
            keep.add(position)
    return keep
