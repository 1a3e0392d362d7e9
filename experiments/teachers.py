"""Annotators who err, each with every selector (B-Pref: Lee et al. 2021, arXiv 2111.03026).

    python -m experiments.teachers cheetah --steps 300000 --seeds 0-2 --out results/teachers

The paper's oracle is always right. The others decide by chance where clips are alike, make mistakes, skip pairs in
which nothing good happens, call alike clips equal, or look at a clip's end, as ``prefrl run --oracle`` has them.
"""

from __future__ import annotations

import argparse
from typing import Any

from experiments.methods import Settings
from experiments.study import main

TEACHERS = ("true-return", "stochastic", "mistake", "skip", "equal", "myopic")
SELECTORS = ("disagreement", "random")


def methods() -> dict[str, Settings]:
    """Every teacher with every selector."""
    return {
        f"{teacher}-{selector}": {"label": {"oracle": teacher}, "query": {"selector": selector}}
        for teacher in TEACHERS
        for selector in SELECTORS
    }


def grid(args: argparse.Namespace) -> dict[str, Any]:
    """The true reward, and all of them."""
    named = methods()
    axes = {"task": args.tasks, "method": ["rl", *named], "labels": args.labels}
    return {"methods": named, "grid": [{**axes, "seed": args.seeds, "steps": args.steps}]}


if __name__ == "__main__":
    main(__doc__, grid, labels=[700])
