"""A run with segments, and other processes that use the store."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from prefrl.store import runs, segments
from prefrl.store.engine import Database
from prefrl.types import Segment

Start = Callable[..., subprocess.Popen[str]]


def make_segment(number: int, n_steps: int = 5, *, source: str = "policy") -> Segment:
    rng = np.random.default_rng(number)
    obs = rng.normal(size=(n_steps, 3)).astype(np.float32)
    act = rng.normal(size=(n_steps, 2)).astype(np.float32)
    states = rng.normal(size=(n_steps, 4))
    return Segment(obs, act, states, env_index=number % 4, episode=number, start=7, env_steps=100, source=source)


@pytest.fixture
def new_segment() -> Callable[..., Segment]:
    return make_segment


@pytest.fixture
def run_id(db: Database) -> int:
    return runs.create_run(db, "hopper", {"seed": 1}, {}).id


@pytest.fixture
def ids(db: Database, run_id: int) -> list[int]:
    """Row ids of ten segments whose true reward is their number, each step."""
    some = [make_segment(number) for number in range(10)]
    return segments.add_segments(db, run_id, some, [np.full(5, float(number)) for number in range(10)])


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a script in a fresh interpreter; what is still alive at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def finish() -> Callable[[Sequence[subprocess.Popen[str]]], list[str]]:
    """Waits for scripts, makes sure that each ended well, and returns what they printed."""

    def end(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
        outputs = []
        for process in processes:
            out, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            assert not err, err
            outputs.append(out)
        return outputs

    return end
