"""A task is learned from comparisons, and is not when the answers are worthless: ``make slow``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def true_return(folder: Path, seed: int, *flags: str) -> float:
    """Mean true return of the last 20 of 60k steps' episodes; 100 is the best, an untrained policy has -115."""
    url = f"sqlite:///{folder}/run.db"
    command = [sys.executable, "-m", "prefrl", "run", "pendulum", "--steps", "60000", "--seed", str(seed), "--db", url]
    done = subprocess.run(
        [*command, "--mode", "lockstep", "--folder", str(folder), "--json", *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )
    return float(json.loads(done.stdout)["metrics"]["true_return"])


def test_700_comparisons_teach_the_pendulum(tmp_path: Path) -> None:
    returns = [true_return(tmp_path / str(seed), seed) for seed in (200, 201, 202)]
    assert sorted(returns)[1] >= 95, returns
    assert min(returns) >= 50, returns


@pytest.mark.parametrize("seed", [200, 201, 202])
def test_random_answers_do_not(tmp_path: Path, seed: int) -> None:
    """A mistake in half of the answers leaves nothing to learn from."""
    assert true_return(tmp_path, seed, "--oracle", "mistake", "--label.oracle_kwargs", "{epsilon = 0.5}") < 0
