"""Teach an agent from comparisons in a few minutes: ``make demo``.

A synthetic oracle compares short clips of a pendulum that starts upright and falls over; from 700 of its
answers, and from nothing else, the agent learns to hold it up.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prefrl.run.status import read_status
from prefrl.store.engine import Database
from prefrl.store.runs import free_name

URL = "sqlite:///runs/demo.db"
STEPS, LABELS, SOLVED = 60_000, 700, 95.0


def prefrl(*arguments: str) -> int:
    """Run one prefrl command and show it."""
    print(f"\n$ prefrl {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "prefrl", *arguments], check=False).returncode


def main() -> int:
    """Run, judge and report; 0 if the task is solved."""
    with Database.create(URL) as db:
        name = free_name(db, "pendulum")
    at = ("--db", URL)
    code = prefrl("run", "pendulum", "--labels", str(LABELS), "--steps", str(STEPS), "--name", name, *at)
    if code:
        return code
    prefrl("eval", name, *at)
    prefrl("report", name, *at)
    with Database.open(URL, readonly=True) as db:
        reached = read_status(db, name).metrics["true_return"]
    solved = reached >= SOLVED
    print(
        f"\n{'Solved' if solved else 'Not solved'}: the agent's last 20 episodes earned {reached:.1f} of 100 "
        f"({SOLVED:.0f} counts as solved); an untrained one falls over and earns about -120.\n"
        "It never saw that reward: it learned from comparisons of clips alone.\n\n"
        "Next:\n"
        f"  the report, for a browser: file://{Path('runs', name, 'report.html').absolute()}\n"
        "  prefrl run cheetah --steps 300000      a robot learns to run (some minutes)\n"
        "  prefrl run --help                      every setting\n"
        "  README.md                              your own environment, oracle or learner"
    )
    return 0 if solved else 1


if __name__ == "__main__":
    sys.exit(main())
