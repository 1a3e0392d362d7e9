"""How many comparisons each way of asking needs to reach nine tenths of what the true reward teaches.

python -m experiments.label_efficiency pendulum --steps 60000 --seeds 0-9 --out results/label-efficiency
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from experiments.curves import interquartile_mean
from experiments.figures import REFERENCE, Series, Study, untrained
from experiments.study import main

ASKED_BY = ("original", "random-queries", "information", "diverse", "information-diverse")
ENOUGH = 0.9


def grid(args: argparse.Namespace) -> dict[str, Any]:
    """The true reward, and every way of asking with every number of comparisons."""
    axes = {"task": args.tasks, "method": ["rl", *ASKED_BY], "labels": args.labels}
    return {"grid": [{**axes, "seed": args.seeds, "steps": args.steps}]}


def needed(series: dict[str, Series]) -> dict[str, int | None]:
    """For each method the fewest comparisons whose interquartile mean reaches enough; None where none does.

    Enough is nine tenths of the way from the untrained policy's return to that of the true reward: a share of a
    return that can be negative says nothing.
    """
    start, reference = untrained(series), float(interquartile_mean(np.array(series[REFERENCE].final)))
    enough = start + ENOUGH * (reference - start)
    found: dict[str, int | None] = {}
    for one in series.values():
        method, labels = one.cells[0]["method"], one.cells[0]["labels"]
        if labels is None:
            continue
        fewest = found.setdefault(method, None)
        if float(interquartile_mean(np.array(one.final))) >= enough and (fewest is None or labels < fewest):
            found[method] = labels
    return found


def finish(study: Study, out: Path) -> None:
    """Print and keep the table."""
    lines = [
        f"{task}: {method}: {labels if labels is not None else 'not reached'}"
        for task, series in study.items()
        if REFERENCE in series
        for method, labels in needed(series).items()
    ]
    (out / "needed.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(__doc__, grid, labels=[100, 200, 350, 500, 700], finish=finish)
