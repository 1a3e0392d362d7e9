"""What each part of the method is worth (paper, section 3.3 and figure 5).

    python -m experiments.ablations cheetah --steps 500000 --seeds 0-2 --out results/figure-5

Each ablation is a setting of prefrl (see ``experiments/methods.py``), not other code.
"""

from __future__ import annotations

import argparse
from typing import Any

from experiments.study import main

ABLATIONS = ("random-queries", "no-ensemble", "no-online", "no-regularization", "no-segments", "target")


def grid(args: argparse.Namespace) -> dict[str, Any]:
    """The true reward, the whole method, and the method without one part."""
    axes = {"task": args.tasks, "method": ["rl", "original", *ABLATIONS], "labels": args.labels}
    return {"grid": [{**axes, "seed": args.seeds, "steps": args.steps}]}


if __name__ == "__main__":
    main(__doc__, grid, labels=[700])
