"""The command line as real processes in a folder of their own, and what they leave in the database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa

from prefrl.run.create import new_run, prepare
from prefrl.run.status import read_status
from prefrl.settings import from_dict
from prefrl.store.comparisons import tail
from prefrl.store.engine import Database
from prefrl.store.metrics import events
from prefrl.store.rewards import reward_versions
from prefrl.store.runs import get_run
from prefrl.store.schema import comparison
from prefrl.store.workers import workers

ROOT = Path(__file__).parents[2]  # the processes run this checkout, whatever else is installed
SMALL = {  # rollouts of 256 steps and little nets: a run is mostly the start of its processes
    "policy.steps": 3000,
    "policy.n_steps": 128,
    "policy.sync_every": 256,
    "policy.checkpoint_every": 512,
    "policy.learner": "ppo",
    "policy.kwargs": {"batch_size": 128, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}},
    "reward.pretrain_steps": 50,
    "reward.fit_steps": 5,
    "query.pool": 128,
    "query.segments_per_rollout": 24,
    "label.budget": 40,
}


@dataclass
class Cli:
    """``prefrl`` in a folder, on one database; every process it starts can be found and ends with the test."""

    folder: Path
    url: str
    env: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *words: object, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefrl", *map(str, words)],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[str], timeout: float = 180) -> Ended:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"still running after {timeout} s: {out}\n{err}\n{self.logs()}")
        return Ended(process.returncode, out, err)

    def __call__(self, *words: object, timeout: float = 180, **env: str) -> Ended:
        return self.end(self.start(*words, **env), timeout)

    def db(self) -> Database:
        return Database.open(self.url)

    def create(self, name: str = "r", **changes: object) -> None:
        """A small run that has not begun; ``changes`` name settings with ``__`` for the dot."""
        values: dict[str, dict[str, object]] = {}
        for key, value in {**SMALL, **{k.replace("__", "."): v for k, v in changes.items()}}.items():
            section, _, leaf = key.partition(".")
            values.setdefault(section, {})[leaf] = value
        config, versions = prepare(from_dict(values))
        with Database.create(self.url) as db:
            new_run(db, name, config, versions)

    def facts(self, name: str = "r") -> Facts:
        with self.db() as db:
            run = get_run(db, name)
            with db.read() as connection:
                rows = [
                    tuple(row)
                    for row in connection.execute(
                        sa.select(comparison).where(comparison.c.run_id == run.id).order_by(comparison.c.seq)
                    )
                ]
            return Facts(
                status=read_status(db, name),
                comparisons=[repr(row) for row in rows],
                seqs=[c.seq for c in tail(db, run.id)],
                versions=[v.version for v in reward_versions(db, run.id)],
                events=[e.message for e in reversed(events(db, run.id, limit=None))],
                pids={w.role: w.pid for w in workers(db, run.id) if not w.released},
            )

    def until(self, what: Callable[[Facts], object], name: str = "r", timeout: float = 60) -> Facts:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if what(facts := self.facts(name)):
                return facts
            time.sleep(0.05)
        pytest.fail(f"not within {timeout} s; {facts}\n{self.logs()}")

    def processes(self) -> list[int]:
        """All processes that use this database, wherever they hang in the tree of processes."""
        mark, found = f"PREFRL_DB={self.url}".encode(), []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes().split(b"\0") and int(path.name) != os.getpid():
                    found.append(int(path.name))
            except OSError:  # it has ended, or is another user's
                continue
        return found

    def gone(self, timeout: float = 10) -> bool:
        deadline = time.monotonic() + timeout
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.processes()

    def logs(self) -> str:
        return "\n".join(f"--- {p}\n{p.read_text()[-2000:]}" for p in sorted(self.folder.rglob("*.log")))


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.out)
        return found


@dataclass(frozen=True)
class Facts:
    """What is in the database at one moment."""

    status: object
    comparisons: list[str]
    seqs: list[int]
    versions: list[int]
    events: list[str]
    pids: dict[str, int]


def assert_whole(facts, budget=40, steps=3000):
    """A run that ended as usual."""
    status = facts.status
    assert status.state == "done"
    assert steps <= status.env_steps <= steps + 256
    assert status.comparisons == budget == status.scheduled
    assert facts.seqs == list(range(1, len(facts.seqs) + 1)), "no gap, nothing twice"
    assert len(facts.versions) > 2
    assert facts.versions == list(range(1, len(facts.versions) + 1))
    assert not facts.pids, "every role is given back"
    assert not any(role.alive for role in status.roles)


@pytest.fixture
def whole():
    return assert_whole


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    yield from _cli(tmp_path, f"sqlite:///{tmp_path}/runs/prefrl.db")


@pytest.fixture
def cli_postgres(tmp_path: Path, postgres_url: str) -> Iterator[Cli]:
    yield from _cli(tmp_path, postgres_url)


def _cli(folder: Path, url: str) -> Iterator[Cli]:
    unwanted = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = {k: v for k, v in os.environ.items() if k not in unwanted}
    env |= {"PREFRL_DB": url, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "COLUMNS": "200"}
    cli = Cli(folder, url, env)
    yield cli
    for process in cli.started:
        process.kill()
        process.communicate()
    for pid in cli.processes():
        os.kill(pid, signal.SIGKILL)
