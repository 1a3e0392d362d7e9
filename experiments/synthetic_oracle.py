"""Learning from comparisons against learning from the true reward (paper, figure 2).

python -m experiments.synthetic_oracle cheetah --steps 1000000 --seeds 0-4 --out results/figure-2
"""

from __future__ import annotations

import argparse
from typing import Any

from experiments.study import main


def grid(args: argparse.Namespace) -> dict[str, Any]:
    """The true reward once a seed, and every number of comparisons."""
    axes = {"task": args.tasks, "method": ["rl", "original"], "labels": args.labels}
    return {"grid": [{**axes, "seed": args.seeds, "steps": args.steps}]}


if __name__ == "__main__":
    main(__doc__, grid, labels=[350, 700, 1400])
