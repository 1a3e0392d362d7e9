"""What a run is doing, read from the database alone."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prefrl.reward_model.schedule import budget_of, n_scheduled
from prefrl.rollout.pace import learning_starts
from prefrl.settings import from_dict
from prefrl.store.clips import clip_counts
from prefrl.store.comparisons import n_counted
from prefrl.store.engine import Database
from prefrl.store.folder import CLIPS, is_clips
from prefrl.store.metrics import events, latest_metrics
from prefrl.store.queue import counts
from prefrl.store.rewards import newest_version
from prefrl.store.runs import Run, get_run, list_runs
from prefrl.store.workers import STALE_MS, Worker, workers


@dataclass(frozen=True)
class RoleStatus:
    """One role's newest process.

    Attributes:
        age_ms: Since its last heartbeat, by the database's clock.
        alive: Not released, heartbeat fresher than 15 s, and its process exists where that can be seen.
        released: It has ended in good order.
    """

    role: str
    host: str
    pid: int
    state: str
    age_ms: int
    alive: bool
    released: bool

    @property
    def sign(self) -> str:
        """Whether the process lives, in words."""
        return "alive" if self.alive else "ended" if self.released else "not alive"


@dataclass(frozen=True)
class Status:
    """A run at one moment; ``to_dict`` is what ``prefrl status --json`` prints.

    Attributes:
        learner: Empty for a folder of videos, as its steps are 0: nothing is trained.
        origin: Where the reward is one that stays as it is, the run that it is from; empty elsewhere.
        clips: Where people compare, how many clips are in each state; empty elsewhere.
    """

    run: str
    state: str
    task: str
    learner: str
    seed: int
    env_steps: int
    total_steps: int
    comparisons: int
    scheduled: int
    budget: int
    open_queries: int
    reward_version: int
    origin: str
    metrics: dict[str, float]
    clips: dict[str, int]
    roles: tuple[RoleStatus, ...]
    events: tuple[str, ...]

    @property
    def is_clips(self) -> bool:
        """Whether the run is a folder of videos: nothing is trained."""
        return self.task == CLIPS

    @property
    def silent_ms(self) -> int | None:
        """For how long a run that is said to be running has had no process alive; None where it has one."""
        if self.state != "running" or not self.roles or any(role.alive for role in self.roles):
            return None
        return min(role.age_ms for role in self.roles)

    @property
    def of_reward(self) -> str:
        """Which reward it is that stays as it is, in words: that of a run's version, or one that `prefrl fit` made."""
        return f"of {self.origin}" if "@" in self.origin else f"fitted to the comparisons of {self.origin}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def read_status(db: Database, name: str, n_events: int = 5) -> Status:
    """Read a run's status.

    Raises:
        StoreError: There is no such run; names the nearest.
    """
    run = get_run(db, name)
    config = from_dict(run.config)
    steps = max((w.env_steps or 0 for w in workers(db, run.id)), default=0)
    clips = is_clips(run)
    start, total = (0, 0) if clips else (learning_starts(config), config.policy.steps)
    learned = config.reward.source == "learned"
    state = counts(db, run.id)
    return Status(
        run=run.name,
        state=run.state,
        task=config.env.id,
        learner="" if clips else config.policy.learner,
        seed=config.seed,
        env_steps=steps,
        total_steps=total,
        comparisons=n_counted(db, run.id),
        scheduled=n_scheduled(config.label, max(0, steps - start), total - start) if learned else 0,
        budget=budget_of(config.label) if learned else 0,
        open_queries=state.get("proposed", 0) + state.get("leased", 0) + state.get("skipped", 0),
        reward_version=newest_version(db, run.id),
        origin=config.reward.origin,
        metrics={name: m.value for name, m in latest_metrics(db, run.id).items()},
        clips=clip_counts(db, run.id) if learned and config.label.oracle == "none" else {},
        roles=tuple(_role(w) for w in workers(db, run.id)),
        events=tuple(f"{e.role}: {e.message}" for e in events(db, run.id, limit=n_events)),
    )


def list_statuses(db: Database) -> list[Status]:
    """The status of every run, oldest first."""
    return [read_status(db, run.name) for run in list_runs(db)]


def live_roles(db: Database, run: Run) -> list[RoleStatus]:
    """Roles of a run whose processes are alive now."""
    return [role for role in map(_role, workers(db, run.id)) if role.alive]


def _role(worker: Worker) -> RoleStatus:
    alive = not worker.released and worker.age_ms < STALE_MS and not _ended(worker.host, worker.pid)
    return RoleStatus(worker.role, worker.host, worker.pid, worker.state, worker.age_ms, alive, worker.released)


def _ended(host: str, pid: int) -> bool:
    """Whether a process of this machine is known to have ended (of other machines nothing is known)."""
    if host != socket.gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it is another user's
        return False
    try:  # a zombie has ended as well; in a container nobody may ever collect it
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:  # not Linux, or it ends at this moment
        return False
