"""One role as a process of its own: heartbeat, signals, and an end when the run ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from prefrl.errors import ConfigError
from prefrl.run.heartbeat import Heartbeat
from prefrl.run.lockstep import Role
from prefrl.run.people import refuse_unasked
from prefrl.run.settle import settle
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.folder import refuse_clips
from prefrl.store.queue import counts, still_answering
from prefrl.store.runs import Run, get_run, set_run_state
from prefrl.store.workers import present_roles

ROLES = ("rollout", "reward", "oracle", "renderer")
IDLE_S, MAX_IDLE_S = 0.02, 0.25  # between two looks, growing: one that polls takes time from those that work
FENCED = 4  # exit code of a worker whose role another process has taken over
INTERRUPTED = 130  # exit code of a worker that a signal has ended: its work may not be done
UNREACHABLE = 5  # exit code of a worker whose database failed, which may be over in a moment


class Process:
    """The surroundings of a role in a process of its own.

    Args:
        db: The run's database.
        run: The run.
        role: Name of the role; taking it over stops an older process of the same role.
        parent: Process id of the supervisor, whose death stops this process, or None.
    """

    def __init__(self, db: Database, run: Run, role: str, parent: int | None) -> None:
        self.db, self.run, self.role, self.parent = db, run, role, parent
        self.people = from_dict(run.config).label.oracle == "none"
        self.heart = Heartbeat(db, run, role)
        self._stop, self._pause = False, IDLE_S
        self.interrupted = False
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop = self.interrupted = True

    @property
    def run_state(self) -> str:
        """The run's state, at most a second old."""
        return self.heart.run_state

    def beat(self, env_steps: int | None, state: str) -> None:
        """Tell how far the role is."""
        self.heart.say(env_steps, state)

    def exchange(self) -> None:
        """The other roles are processes of their own: nothing to do, but the next wait is a new one."""
        self._pause = IDLE_S

    def wait(self) -> None:
        """Sleep a moment, longer from time to time."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, MAX_IDLE_S)

    def stopping(self) -> bool:
        """True after a signal, the supervisor's death, or when the run was stopped.

        Raises:
            FencedError: Another process has taken the role over.
        """
        self.heart.check()
        if self.parent is not None and os.getppid() != self.parent:
            self._stop = True
        return self._stop or self.run_state == "stopped"

    def at_an_end(self) -> bool:
        """Whether nobody waits for this role any more.

        Where a signal has ended it while the last comparisons are asked, answered and fitted, the others do; it will
        be started again.
        """
        if not self.interrupted:
            return True
        self.heart.look()  # what it knows may be a second old
        return self.run_state != "done"

    def others_finished(self) -> bool:
        """Whether, after the run's end, no other role will hand over any more work.

        The oracle stays as long as the reward role, which may be fitting before it asks for the last
        comparisons; the reward role stays as long as the oracle has any to answer. One that was killed may
        be started again at any moment, and counts as present until its heartbeat is stale. People may never come
        back: the reward role stays as long as they answer, and the renderer as long as the reward role.
        """
        present = present_roles(self.db, self.run.id)
        if self.role in ("oracle", "renderer"):
            return "reward" not in present
        if self.people:
            return not still_answering(self.db, self.run.id)
        asked = counts(self.db, self.run.id)
        return "oracle" not in present or not asked["proposed"] + asked["leased"]


def work(
    url: str,
    run_name: str,
    role: str,
    parent: int | None = None,
    log_dir: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> int:
    """Be one role of a run until the run is over or someone says stop; the exit code.

    ``tell`` is given what a person who starts it by hand (without a ``parent``) should know.

    Raises:
        ConfigError: Unknown role, one that the run does not have, or a run that is stopped.
    """
    if role not in ROLES:
        raise ConfigError(f"unknown role {role!r}; known: {', '.join(ROLES)}")
    db = Database.open(url)
    try:
        run = get_run(db, run_name)
        refuse_clips(run, "work on")
        config = from_dict(run.config)
        if role == "oracle" and config.label.oracle == "none":
            raise ConfigError(f"run {run_name!r} has people as annotators (label.oracle none); it has no oracle role")
        if role != "rollout":
            refuse_unasked(run)
        if run.state == "stopped":
            raise ConfigError(f"run {run_name!r} is stopped; `prefrl resume {run_name}` starts it and its roles")
        if parent is None:
            for line in _to_know(db, run, role, config.policy.steps):
                tell(line)
        around = Process(db, run, role, parent)
        try:
            if role == "rollout":
                _be_rollout(db, run, around, config.policy.threads, log_dir)
            elif role == "renderer":
                _be_renderer(db, run, around)
            else:
                _serve(_make(role, db, run, config.policy.threads), around)
            orderly = around.at_an_end()
        except BaseException:
            around.heart.close(orderly=False)
            raise
        around.heart.close(orderly=orderly)
        return INTERRUPTED if around.interrupted else 0
    finally:
        db.close()


def _to_know(db: Database, run: Run, role: str, steps: int) -> list[str]:
    """What someone who starts a role by hand should know; the supervisor's roles have been checked with the run.

    Raises:
        ConfigError: The environment no longer has the spaces that the run began with.
    """
    lines = []
    if role in ("rollout", "renderer"):  # the others never touch the environment, which may be missing here
        from prefrl.run.create import check_versions

        lines = check_versions(db, run)
    if run.state == "done":
        lines.append(
            f"run {run.name!r} is done with all its {steps} steps; `prefrl resume` with more --steps trains on"
        )
    return lines


def _threads(configured: int) -> int:
    """The user's OMP_NUM_THREADS, which the supervisor passes on, goes before the settings."""
    named = os.environ.get("OMP_NUM_THREADS", "")
    return int(named) if named.isdigit() and int(named) > 0 else configured


def _be_rollout(db: Database, run: Run, around: Process, threads: int, log_dir: str | None) -> None:
    from prefrl.rollout.role import RolloutRole

    settle(_threads(threads))
    around.beat(None, "starting")
    role = RolloutRole(db, run, around, log_dir)
    role.run_to_end()
    if role.finished:
        set_run_state(db, run.id, "done")


def _be_renderer(db: Database, run: Run, around: Process) -> None:
    from prefrl.segments.role import RendererRole, be_polite

    be_polite()
    with contextlib.closing(RendererRole(db, run)) as renderer:
        _serve(renderer, around)


def _make(role: str, db: Database, run: Run, threads: int) -> Role:
    if role == "oracle":
        from prefrl.oracle.role import OracleRole

        return OracleRole(db, run)
    from prefrl.reward_model.role import RewardRole

    settle(_threads(threads))
    return RewardRole(db, run)


def _serve(role: Role, around: Process) -> None:
    pause = IDLE_S
    while not around.stopping():
        # asked before the step, which then sees all that the others have left
        last = around.run_state == "done" and around.others_finished()
        if role.step():
            around.heart.state, pause = "working", IDLE_S
            continue
        if last:
            break
        around.heart.state = f"waiting for {role.waiting_for()}"
        time.sleep(pause)
        pause = min(2 * pause, MAX_IDLE_S)
        around.heart.look()
    around.heart.state = "done" if around.run_state == "done" else "stopped"
