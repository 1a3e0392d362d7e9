"""Run a study: the cells of a grid side by side, each once, whoever else is at it.

    python -m experiments.sweep experiments/configs/pendulum.toml --out results/pendulum --jobs 2

Each cell has a folder of its own with its run's database. What is done is not done again, what was interrupted goes
on, and what failed is tried again at the next start. Runners that share the folder share the cells. When a cell is
done, ``cells.json`` (a record a cell) and ``curves.parquet`` (a row a point) hold all that are: these two files are
enough for a study to go on elsewhere, or after the databases were deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from experiments.cells import DONE, FAILED, TAKEN, result_of, run_cell, state_of
from experiments.grid import Cell, read_grid
from experiments.tables import put_back, write_tables
from prefrl.errors import ConfigError, PrefrlError
from prefrl.report.markup import duration, number

MIN_FREE = 500_000_000  # bytes: a database in use grows by less


class Sweep:
    """The cells of a grid in a folder, run by some threads, each of which waits for one process at a time.

    Args:
        cells: What is to be run.
        out: Folder of the study.
        jobs: Processes side by side.
    """

    def __init__(self, cells: list[Cell], out: Path, jobs: int) -> None:
        self.cells, self.out, self.jobs = cells, out, jobs
        self.stop, self.why = False, ""
        self._todo = [cell for cell in cells if state_of(self.folder(cell)) != DONE]
        self._states = {cell.name: state_of(self.folder(cell)) for cell in cells}
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def folder(self, cell: Cell) -> Path:
        """Where a cell is kept."""
        return self.out / "cells" / cell.name

    def run(self) -> bool:
        """Run what is missing; True if every cell is done."""
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, self._on_signal)
        self.say(f"{len(self.cells)} cells, {len(self._todo)} to run, {self.jobs} side by side")
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)  # a signal is noticed when the main thread wakes
        write_tables(self.out, [self.folder(cell) for cell in self.cells])
        self._report()
        return all(state == DONE for state in self._states.values())

    def say(self, line: str) -> None:
        """A line for who looks on, with the time."""
        print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop = True
        for child in list(self._children):  # one more each time: the second stops it at once
            _interrupt(child)

    def _started(self, child: subprocess.Popen[bytes]) -> None:
        self._children.add(child)
        if self.stop:  # while it was being prepared
            _interrupt(child)

    def _work(self) -> None:
        while not self.stop:
            with self._lock:
                if not self._todo:
                    return
                cell = self._todo.pop(0)
            self._one(cell)

    def _one(self, cell: Cell) -> None:
        free = shutil.disk_usage(self.out).free
        if free < MIN_FREE:
            self._end(f"only {free / 1e6:.0f} MB are left on the disk of {self.out}; make room")
            return
        self._states[cell.name] = "running"
        try:
            state = run_cell(self.folder(cell), cell, self._started)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._end(f"{'the disk is full' if full else f'{self.folder(cell)} cannot be written'} ({error.strerror})")
            state = state_of(self.folder(cell))
        except Exception:  # one cell must not take the others with it
            state = FAILED
            (self.folder(cell) / "failure.txt").write_text(traceback.format_exc())
        with self._lock:
            self._states[cell.name] = state
            if state == DONE:
                write_tables(self.out, [self.folder(one) for one in self.cells])
            self.say(f"{cell.name}: {self._outcome(cell, state)}; {self._left()}")

    def _outcome(self, cell: Cell, state: str) -> str:
        if state == DONE:
            result = result_of(self.folder(cell))
            return f"true return {shown(result['true_return'])} in {shown(result['wall_s'])} s"
        return f"{state}, see {self.folder(cell) / 'failure.txt'}" if state == FAILED else state

    def _left(self) -> str:
        """How many cells are left, and how long they take as those did that are done."""
        done = [cell for cell in self.cells if self._states[cell.name] == DONE]
        left = [cell for cell in self.cells if self._states[cell.name] not in (DONE, TAKEN)]
        if not left or not done:
            return f"{len(left)} left"
        rates: dict[str, list[float]] = {}
        for cell in done:
            result = result_of(self.folder(cell))
            if result["wall_s"] is not None:
                rates.setdefault(cell.task, []).append(result["wall_s"] / result["env_steps"])
        if not rates:
            return f"{len(left)} left"
        usual = sum(sum(r) for r in rates.values()) / sum(len(r) for r in rates.values())
        rate = {task: sum(r) / len(r) for task, r in rates.items()}
        seconds = sum(rate.get(cell.task, usual) * cell.config.policy.steps for cell in left) / self.jobs
        return f"{len(left)} left, about {duration(int(1000 * seconds))}"

    def _end(self, why: str) -> None:
        self.stop, self.why = True, why

    def _report(self) -> None:
        n = {state: list(self._states.values()).count(state) for state in dict.fromkeys(self._states.values())}
        self.say(", ".join(f"{count} {state}" for state, count in n.items()))
        if self.why:
            self.say(f"stopped: {self.why}, then start the same command again: it goes on")
        elif self.stop:
            self.say("stopped; the same command goes on")


def shown(value: float | None) -> str:
    """A number that may be unknown."""
    return number(math.nan if value is None else value)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):  # it has ended this moment
            os.kill(child.pid, signal.SIGINT)


def list_or_run(cells: list[Cell], out: Path, jobs: int, *, only_list: bool) -> bool:
    """Show the cells of a study and what is done, or run what is missing; False if that left any undone.

    Raises:
        ConfigError: There are no jobs, the folder cannot be made, or its tables cannot be read.
    """
    if jobs < 1:
        raise ConfigError(f"--jobs must be at least 1, not {jobs}")
    put_back(out)
    if only_list:
        for cell in cells:
            print(f"{state_of(out / 'cells' / cell.name):12} {cell.name}")
        return True
    return run_study(cells, out, jobs)


def run_study(cells: list[Cell], out: Path, jobs: int) -> bool:
    """Run the cells of a study; True if every one is done.

    Raises:
        ConfigError: The folder cannot be made.
    """
    try:
        (out / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{out} cannot be made into a folder for results ({error.strerror}): choose another --out"
        ) from error
    return Sweep(cells, out, jobs).run()


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of whatever runs a study."""
    parser.add_argument("--out", type=Path, required=True, help="folder of the study")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument("--list", action="store_true", help="show the cells and what is done, and run nothing")


def main() -> None:
    """Read the command line and run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=Path, help="TOML file, see experiments/grid.py")
    add_flags(parser)
    args = parser.parse_args()
    try:
        done = list_or_run(read_grid(args.grid), args.out, args.jobs, only_list=args.list)
    except PrefrlError as error:
        sys.exit(f"experiments.sweep: {error}")
    sys.exit(0 if done else 1)


if __name__ == "__main__":
    main()
