"""A study as real processes: killed, shared, interrupted, broken; a cell is a result once it is done and only then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyarrow import parquet

from experiments import sweep
from experiments.cells import DONE, FAILED, INTERRUPTED, OPEN, locked, state_of
from experiments.grid import cells_of, read_grid

ROOT = Path(__file__).parents[2]
GRID = """
[settings]
policy.learner = "ppo"
policy.n_steps = 128
policy.sync_every = 256
policy.kwargs = {batch_size = 128, n_epochs = 1}
reward.pretrain_steps = 20
reward.fit_steps = 5
[[grid]]
task = "pendulum"
method = "original"
labels = 20
seed = "0-1"
steps = STEPS
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(GRID.replace("STEPS", "3000"))
    return path


def start(grid: Path, jobs: int = 2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.sweep", str(grid), "--out", str(grid.parent / "out"), "--jobs", str(jobs)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def folders(grid: Path) -> list[Path]:
    return [grid.parent / "out" / "cells" / cell.name for cell in read_grid(grid)]


def attempts(folder: Path) -> int:
    return (folder / "attempts.jsonl").read_text().count("commit")


def until(what, timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pid_of_child(process: subprocess.Popen[str]) -> int:
    found: list[str] = []

    def look() -> bool:
        path = Path(f"/proc/{process.pid}/task")
        found[:] = " ".join((task / "children").read_text() for task in path.iterdir()).split()
        return any(b"resume" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in found)

    until(look)
    return int(next(pid for pid in found if b"resume" in Path(f"/proc/{pid}/cmdline").read_bytes()))


def test_two_runners_share_a_study_and_its_tables_hold_every_cell_once(grid: Path) -> None:
    runners = [start(grid, jobs=1), start(grid, jobs=1)]
    said = [runner.communicate(timeout=180)[0] for runner in runners]
    until(lambda: all(state_of(folder) == DONE for folder in folders(grid)))
    assert [attempts(folder) for folder in folders(grid)] == [1, 1]
    assert all("true return" in words for words in said), "both had work"
    again = start(grid)
    words, _ = again.communicate(timeout=180)
    assert again.returncode == 0
    assert "2 cells, 0 to run" in words
    records = json.loads((grid.parent / "out" / "cells.json").read_text())
    assert [r["seed"] for r in records] == [0, 1]
    for record in records:
        assert record["env_steps"] >= 3000
        assert record["comparisons"] == 20
        assert record["cpu_s"] > 0.5
        assert record["versions"]["torch"]
        assert len(record["commits"]) == 1
    table = parquet.read_table(grid.parent / "out" / "curves.parquet").to_pandas()
    returns = table[(table.metric == "true_return") & (table.seed == 1)]
    assert returns.env_steps.is_monotonic_increasing
    assert returns.value.iloc[-1] == pytest.approx(records[1]["true_return"], abs=1e-3)
    assert set(table.labels) == {20}


def test_a_killed_runner_loses_nothing_and_what_is_not_done_is_no_result(grid: Path) -> None:
    grid.write_text(GRID.replace("STEPS", "60000").replace('"0-1"', "0"))
    (folder,) = folders(grid)
    runner = start(grid)
    child = pid_of_child(runner)
    runner.kill()
    runner.communicate()
    with locked(folder) as lock:
        assert lock is None, "the process that it left behind still has the cell"
    words, _ = start(grid).communicate(timeout=180)
    assert "1 taken by another runner" in words
    os.kill(child, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{child}").exists())
    assert state_of(folder) == INTERRUPTED
    assert json.loads((grid.parent / "out" / "cells.json").read_text()) == []


def test_an_interrupt_ends_the_runs_in_good_order_and_the_study_goes_on(grid: Path) -> None:
    runner = start(grid, jobs=1)
    pid_of_child(runner)
    time.sleep(3)  # into its work: so early a process is still importing, which ends as well
    runner.send_signal(signal.SIGINT)
    words, _ = runner.communicate(timeout=180)
    assert runner.returncode == 1
    assert "the same command goes on" in words
    assert [state_of(folder) for folder in folders(grid)][1:] == [OPEN]
    again = start(grid)
    words, _ = again.communicate(timeout=180)
    assert again.returncode == 0, words
    assert "2 done" in words


def test_a_failed_cell_is_shown_and_tried_again_and_the_others_go_on(grid: Path) -> None:
    broken = folders(grid)[0]
    broken.mkdir(parents=True)
    (broken / "run.db").write_text("no database")
    runner = start(grid)
    words, _ = runner.communicate(timeout=180)
    assert runner.returncode == 1
    assert "1 failed" in words
    assert "1 done" in words
    assert "run.db" in (broken / "failure.txt").read_text()
    assert [r["seed"] for r in json.loads((grid.parent / "out" / "cells.json").read_text())] == [1]
    (broken / "run.db").unlink()
    words, _ = start(grid).communicate(timeout=180)
    assert "2 done" in words
    assert state_of(broken) == DONE


def test_a_full_disk_stops_a_study_before_it_breaks_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "MIN_FREE", 10**18)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    values = {"grid": [{"task": "pendulum", "method": "rl", "seed": 0, "steps": 5000}]}
    assert not sweep.run_study(cells_of(values), tmp_path / "out", 1)
    said = capsys.readouterr().out
    assert "MB are left on the disk" in said
    assert "it goes on" in said
    assert FAILED not in said


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    grid = tmp_path / "study.toml"
    grid.write_text(GRID.replace("STEPS", "3000"))
    words = [sys.executable, "-m", "experiments.sweep", str(grid), "--out", str(tmp_path / "file" / "x")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("experiments.sweep: ")
    assert "choose another --out" in done.stderr


SLEEPER = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs the tests may ignore it
print("up", flush=True)
time.sleep(60)
"""


def test_a_cell_that_was_being_prepared_when_somebody_stopped_the_study_is_stopped_too(tmp_path: Path) -> None:
    study = sweep.Sweep([], tmp_path, 1)
    study.stop = True
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        study._started(child)
        assert child.wait(10) == -signal.SIGINT
