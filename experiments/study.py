"""The command line that the studies share: run a grid, then draw it.

Every study is a grid of tasks, methods, comparisons and seeds (see ``experiments/grid.py``); what is done is not done
again, and the figures show what is done so far.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.figures import Study, print_rows, read_study, write_figures
from experiments.grid import MODES, cells_of
from experiments.sweep import add_flags, list_or_run
from prefrl.errors import PrefrlError
from prefrl.parsing import whole

Finish = Callable[[Study, Path], None]


def parser(doc: str, labels: list[int]) -> argparse.ArgumentParser:
    """The flags of a study; ``doc`` is its module's docstring, ``labels`` its usual numbers of comparisons."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("tasks", nargs="+", metavar="TASK", help="such as pendulum or cheetah")
    found.add_argument("--steps", type=whole, required=True, help="agent steps of each run")
    found.add_argument("--seeds", default="0-4", help='such as "0-9" or "0,3,5" (default: 0-4)')
    found.add_argument("--labels", type=whole, nargs="+", default=labels, help=f"comparisons (default: {labels})")
    found.add_argument("--mode", choices=MODES, default="lockstep", help="default: lockstep")
    add_flags(found)
    return found


def main(
    doc: str,
    grid: Callable[[argparse.Namespace], dict[str, Any]],
    labels: list[int],
    finish: Finish = lambda study, out: None,
) -> None:
    """Run a study from the command line.

    Args:
        doc: Docstring of the study's module.
        grid: From the flags to the contents of a grid file, without its mode.
        labels: Usual numbers of comparisons.
        finish: What else to do with the results, in the folder of the study.
    """
    args = parser(doc, labels).parse_args()
    try:
        done = _run(args, grid, finish)
    except PrefrlError as error:
        sys.exit(f"{Path(sys.argv[0]).stem}: {error}")
    sys.exit(0 if done else 1)


def _run(args: argparse.Namespace, grid: Callable[[argparse.Namespace], dict[str, Any]], finish: Finish) -> bool:
    done = list_or_run(cells_of({"mode": args.mode, **grid(args)}), args.out, args.jobs, only_list=args.list)
    if args.list:
        return done
    study = read_study(args.out)
    for path in write_figures(study, args.out):
        print(path)
    print_rows(study)
    finish(study, args.out)
    return done
