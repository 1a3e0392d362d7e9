"""Speed and memory as ratios within one run: ``make bench``.

Alternating runs, so that a machine whose speed drifts does not decide; medians are compared.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from prefrl.errors import StoreError
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.runs import get_run
from prefrl.store.workers import workers

pytestmark = pytest.mark.bench

PLAIN = """
import sys, time, json
import torch
torch.set_num_threads(1)
from stable_baselines3.common.callbacks import BaseCallback
from prefrl.config import EnvConfig, PolicyConfig
from prefrl.resolve import resolve_policy
from prefrl.rollout.learners import make_learner, make_normaliser
from prefrl.rollout.role import make_venv

class Clock(BaseCallback):
    times = []
    def _on_rollout_end(self):
        self.times.append((self.num_timesteps, time.monotonic()))
    def _on_step(self):
        return True

task, learner, n_envs, n_steps, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
policy = resolve_policy(PolicyConfig(learner=learner, n_envs=n_envs, n_steps=n_steps))
venv = make_normaliser(make_venv(EnvConfig(id=task), n_envs, seed=0), policy)
model = make_learner(policy, venv, seed=0)
model.learn(steps, callback=Clock())
(a, s), (b, t) = Clock.times[1], Clock.times[-1]
print(json.dumps({"steps_per_s": (b - a) / (t - s)}))
"""

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def plain(task: str, learner: str, n_envs: int, n_steps: int, steps: int) -> tuple[float, float]:
    """Steps a second and wall seconds of stable-baselines3 alone, in a process of its own."""
    started = time.monotonic()
    arguments = [task, learner, str(n_envs), str(n_steps), str(steps)]
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    return json.loads(done.stdout)["steps_per_s"], time.monotonic() - started


def ours(folder: Path, name: str, *flags: str) -> tuple[float, float, str]:
    """Steps a second while learning, wall seconds of the whole job, and the database's URL."""
    url = f"sqlite:///{folder}/bench.db"
    command = [sys.executable, "-m", "prefrl", "run", *flags, "--name", name, "--db", url, "--folder", str(folder)]
    started = time.monotonic()
    subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    wall = time.monotonic() - started
    with Database.open(url, readonly=True) as db:
        rows = read_metrics(db, get_run(db, name).id, ["reward_version"])
    first, last = rows[0], rows[-1]
    return (last.env_steps - first.env_steps) / ((last.at_ms - first.at_ms) / 1000), wall, url


def test_rollouts_keep_their_speed_beside_the_reward_model(tmp_path: Path) -> None:
    """Async: environment steps a second with the learned reward against plain stable-baselines3.

    A piece of a run of 300,000 steps: with a short run's own `reward.max_age` the policy waits for the fitting.
    """
    ratios = []
    for i in range(3):
        alone, _ = plain("cheetah", "trpo", 2, 512, 30_000)
        flags = ["cheetah", "--steps", "40000", "--reward.max_age", "10000", "--seed", str(i)]
        learned, _, _ = ours(tmp_path, f"r{i}", *flags)
        ratios.append(learned / alone)
        print(f"cheetah, TRPO: {learned:.0f} steps/s with the learned reward, {alone:.0f} alone: {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f} (target 0.85)")
    assert statistics.median(ratios) >= 0.85


def test_the_whole_job_costs_little_more_than_plain_rl(tmp_path: Path) -> None:
    """20k steps of Pendulum-v1 with PPO, 700 comparisons of 25 steps: wall clock against plain PPO."""
    ratios = []
    for i in range(3):
        _, alone = plain("Pendulum-v1", "ppo", 4, 512, 20_000)
        flags = ["Pendulum-v1", "--learner", "ppo", "--policy.n_envs", "4", "--policy.n_steps", "512"]
        _, whole, _ = ours(tmp_path, f"r{i}", *flags, "--steps", "20000", "--labels", "700", "--seed", str(i))
        ratios.append(whole / alone)
        print(f"Pendulum-v1, PPO, 20k steps: {whole:.1f} s with 700 comparisons, {alone:.1f} s alone: {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f} (target 1.25)")
    assert statistics.median(ratios) <= 1.25


def test_memory_is_flat_after_warm_up(tmp_path: Path) -> None:
    """Resident memory of each process on cheetah, from a quarter of the run to its end."""
    seen: dict[str, list[tuple[int, float]]] = {}
    url = f"sqlite:///{tmp_path}/bench.db"
    done = threading.Event()

    def watch() -> None:
        while not done.wait(1.0):
            try:
                with Database.open(url, readonly=True) as db:
                    rows = workers(db, get_run(db, "m").id)
            except StoreError:  # not made yet
                continue
            steps = max((w.env_steps or 0 for w in rows), default=0)
            for w in rows:
                status = Path(f"/proc/{w.pid}/status")
                if status.exists() and (rss := [x for x in status.read_text().splitlines() if x.startswith("VmRSS")]):
                    seen.setdefault(w.role, []).append((steps, int(rss[0].split()[1]) / 1024))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ours(tmp_path, "m", "cheetah", "--steps", "100000")
    finally:
        done.set()
        watcher.join()
    for role, points in seen.items():
        late = [mb for steps, mb in points if steps > 25_000]
        print(f"{role}: {late[0]:.0f} MiB at a quarter of 100k steps, {late[-1]:.0f} MiB at the end")
        assert late[-1] < late[0] + 30
