"""One cell of a study: its folder, its run, and what is kept of it."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.grid import Cell
from prefrl.errors import PrefrlError
from prefrl.report.facts import read_facts
from prefrl.report.numbers import concordance
from prefrl.run.create import new_run, prepare
from prefrl.run.status import read_status
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.runs import get_run, list_runs

RUN = "cell"  # name of the one run in a cell's database
PACKAGES = ("prefrl", "torch", "stable-baselines3", "sb3-contrib", "gymnasium", "mujoco", "numpy")
HELD_OUT = ("held_out_n", "held_out_claimed", "held_out_seen", "hacking_alarm")
CURVES = ("true_return", "learned_return", "oob_accuracy", "entropy", "disagreement", *HELD_OUT)
STOPPED = (130, -signal.SIGINT, -signal.SIGTERM, -signal.SIGKILL)  # exit codes after somebody has stopped it
DONE, FAILED, INTERRUPTED, TAKEN, OPEN = "done", "failed", "interrupted", "taken by another runner", "open"


def url_of(folder: Path) -> str:
    """The database of a cell."""
    return f"sqlite:///{(folder / 'run.db').resolve()}"


def state_of(folder: Path) -> str:
    """What a cell's folder says of it; a cell without a result is no result."""
    if (folder / "result.json").exists():
        return DONE
    if (folder / "failure.txt").exists():
        return FAILED
    return INTERRUPTED if (folder / "run.db").exists() else OPEN


def result_of(folder: Path) -> dict[str, Any]:
    """The result of a cell that is done."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


@contextmanager
def locked(folder: Path) -> Iterator[int | None]:
    """Holds a cell for this runner and the process that it starts; None where another one has it.

    The lock is the kernel's: it ends with the last of the processes that hold it, however they die.
    """
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield file.fileno()


def run_cell(folder: Path, cell: Cell, started: Callable[[subprocess.Popen[bytes]], None]) -> str:
    """Run a cell, or go on with it, and write its ``result.json``, or why there is none; returns its state.

    Args:
        folder: Of the cell.
        cell: What to run.
        started: Told of the process, so that it can be stopped.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as lock:
        if lock is None:
            return TAKEN
        if state_of(folder) == DONE:
            return DONE
        (folder / "failure.txt").unlink(missing_ok=True)
        try:
            return _run(folder, cell, started, lock)
        except PrefrlError as error:
            _write(folder / "failure.txt", str(error))
            return FAILED


def _run(folder: Path, cell: Cell, started: Callable[[subprocess.Popen[bytes]], None], lock: int) -> str:
    _prepare(folder, cell)
    if not _finished(folder):  # else whoever ran it was killed before he could say so
        words = [sys.executable, "-m", "prefrl", "resume", RUN, "--mode", cell.mode, "--db", url_of(folder)]
        _note(folder, {"commit": commit()})
        begun = time.monotonic()
        with (folder / "log.txt").open("ab") as log:
            child = subprocess.Popen(
                [*words, "--folder", str(folder / "logs"), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                pass_fds=(lock,),
                start_new_session=True,  # the runner tells it when to stop
            )
            started(child)
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = code = os.waitstatus_to_exitcode(status)
        cpu_s = used.ru_utime + used.ru_stime
        _note(folder, {"wall_s": round(time.monotonic() - begun, 1), "cpu_s": round(cpu_s, 1)})
        if not _finished(folder):
            if code in STOPPED:
                return INTERRUPTED
            said = (folder / "log.txt").read_text(errors="replace")[-2000:]
            _write(folder / "failure.txt", f"exit code {code}\n{said}")
            return FAILED
    write_result(folder, collect(folder, cell))
    return DONE


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Make a cell one that is done."""
    _write(folder / "result.json", json.dumps(result))


def collect(folder: Path, cell: Cell) -> dict[str, Any]:
    """What is kept of a run that is done: where it ended, its curves, its cost, and what it ran with."""
    with Database.open(url_of(folder), readonly=True) as db:
        run, status, facts = get_run(db, RUN), read_status(db, RUN), read_facts(db, RUN)
        curves: dict[str, list[tuple[int, float]]] = {
            name: [(row.env_steps, round(row.value, 4)) for row in read_metrics(db, run.id, [name])] for name in CURVES
        }
    if facts.quality:
        agreements = facts.quality.agreements
        curves["correlation"] = [(a.env_steps, round(a.correlation, 4)) for a in agreements]
        curves["accuracy"] = [(a.env_steps, round(concordance(a.learned, a.true), 4)) for a in agreements]
    notes = [json.loads(line) for line in (folder / "attempts.jsonl").read_text().splitlines()]
    commits, costs = [one for one in notes if "commit" in one], [one for one in notes if "wall_s" in one]
    known = len(commits) == len(costs)  # else a runner was killed, and nobody saw what its process took
    return {
        "cell": folder.name,
        "task": cell.task,
        "method": cell.method,
        "labels": cell.labels,
        "seed": cell.seed,
        "mode": cell.mode,
        "settings": cell.settings,
        "steps": cell.config.policy.steps,
        "env_steps": status.env_steps,
        "comparisons": status.comparisons,
        "true_return": status.metrics.get("true_return"),
        "curves": curves,
        "wall_s": round(sum(one["wall_s"] for one in costs), 1) if known else None,
        "cpu_s": round(sum(one["cpu_s"] for one in costs), 1) if known else None,
        "attempts": len(commits),
        "commits": sorted({one["commit"] for one in commits}),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "machine": machine(),
    }


def machine() -> str:
    """What the cell ran on, in words."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"


def commit() -> str:
    """Commit of the code that runs, with ``+`` where the tree has changes."""
    words = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _prepare(folder: Path, cell: Cell) -> None:
    """Make the run, if it does not exist yet."""
    with Database.create(url_of(folder)) as db:
        if not list_runs(db):
            new_run(db, RUN, *prepare(cell.config))


def _finished(folder: Path) -> bool:
    with Database.open(url_of(folder), readonly=True) as db:
        return get_run(db, RUN).state == "done"


def _note(folder: Path, what: dict[str, Any]) -> None:
    """A line when a process starts, and another when it has ended."""
    with (folder / "attempts.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\n")


def _write(path: Path, text: str) -> None:
    """All of a file or nothing of it."""
    half = path.with_suffix(".half")
    half.write_text(text)
    half.replace(path)
