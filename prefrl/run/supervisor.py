"""Starts the roles as processes, restarts those that die, and ends them when the run ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TypeVar

from prefrl.config import RunConfig
from prefrl.errors import FencedError, PrefrlError, StoreError
from prefrl.run.create import make_folder
from prefrl.run.hints import typed
from prefrl.run.people import Page
from prefrl.run.status import read_status
from prefrl.run.view import SHOW_EVERY_S, STOPPING, View
from prefrl.run.worker import FENCED, INTERRUPTED, UNREACHABLE
from prefrl.settings import from_dict
from prefrl.store.clips import last_drawn_ms, retry_clips
from prefrl.store.engine import Database
from prefrl.store.metrics import add_event
from prefrl.store.queue import counts, still_answering
from prefrl.store.rewards import newest_version
from prefrl.store.runs import Run, get_run, set_run_state
from prefrl.store.workers import workers

POLL_S = 0.1
MAX_DEATHS = 3  # of one role in a row, none of which counts as bad luck: it keeps dying
LUCKY_AFTER_S = 10.0  # a signal (not an error) that ends a process older than this came from outside
STOP_WITHIN_S = 60.0
PATIENCE_S = 60.0  # with a database that does not answer
BACK_OFF_S = 5.0  # between two starts of a role that lost its database: at once it would only lose it again

T = TypeVar("T")


@dataclass
class Child:
    """One role's process, and how often the role has died without getting any further in between."""

    role: str
    process: subprocess.Popen[bytes]
    log: Path
    n_deaths: int
    progress: int  # the furthest that the role has ever been
    started: float = field(default_factory=time.monotonic)


def roles_of(config: RunConfig) -> list[str]:
    """The roles that a run needs processes for, in the order in which they start."""
    if config.reward.source != "learned":
        return ["rollout"]
    return ["rollout", "reward", "renderer" if config.label.oracle == "none" else "oracle"]


class Supervisor:
    """Runs one run's roles on this machine.

    Args:
        db: The run's database.
        url: Its URL, password included, for the processes.
        run: The run.
        folder: Where logs and TensorBoard files go.
        view: Shows what happens.
        page: The labeling page, to be served as long as the run goes on, or None.
    """

    def __init__(self, db: Database, url: str, run: Run, folder: Path, view: View, page: Page | None = None) -> None:
        self.db, self.url, self.run, self.folder, self.view, self.page = db, url, run, folder, view, page
        self.config = from_dict(run.config)
        self.children: dict[str, Child] = {}
        self._interrupts = 0
        self._answered = time.monotonic()  # when the database last did
        self._trouble = ""  # with the database, as last shown

    def supervise(self) -> bool:
        """Run until the rollout has all its steps (True) or the user stops it (False).

        Raises:
            PrefrlError: A role keeps dying; holds its last words.
        """
        make_folder(self.folder)
        set_run_state(self.db, self.run.id, "running")
        old = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._retry_clips()
            for role in roles_of(self.config):
                self.children[role] = self._start(role, 0, self._progress(role))
            if self.page:
                self.page.start()
                self.view.say(f"compare clips at {self.page.address}")
            self._watch()
            return self._finish()
        except FencedError:  # the run goes on elsewhere
            self._kill()
            raise
        except BaseException:
            self._kill()
            with contextlib.suppress(StoreError):  # the first error tells more
                if get_run(self.db, self.run.name).state != "done":
                    set_run_state(self.db, self.run.id, "failed")
            raise
        finally:
            if self.page:
                self.page.stop()
            for number, handler in old.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1

    def _retry_clips(self) -> None:
        """What failed may have failed for want of something that is there by now."""
        n = retry_clips(self.db, self.run.id)
        if n:
            add_event(self.db, self.run.id, "supervisor", "clips", f"{n} clips that had failed are tried again")

    def _start(self, role: str, n_deaths: int, progress: int) -> Child:
        log = self.folder / f"{role}.log"
        command = [sys.executable, "-m", "prefrl", "worker", self.run.name, "--role", role]
        command += ["--parent", str(os.getpid()), "--log-dir", str(self.folder / "tensorboard")]
        environment = {**os.environ, "PREFRL_DB": self.url}  # not a flag: a password would show in the process list
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            environment.setdefault(name, str(self.config.policy.threads))
        with log.open("ab") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        return Child(role, process, log, n_deaths, progress)

    def _watch(self) -> None:
        """Until the rollout has ended well or the user wants to stop."""
        shown = 0.0
        while not self._interrupts:
            if self.children["rollout"].process.poll() == 0:
                return
            self._patiently(self._restart_dead)
            self._look_at_page()
            if time.monotonic() - shown > SHOW_EVERY_S:
                shown = time.monotonic()
                self._show()
            time.sleep(POLL_S)

    def _look_at_page(self) -> None:
        message = self.page.look() if self.page else ""
        if message:
            self.view.say(message)
            self._patiently(lambda: add_event(self.db, self.run.id, "supervisor", "page", message))

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """What ``ask`` finds in the database; None while that does not answer.

        Raises:
            StoreError: It has not answered for ``PATIENCE_S``, or the run has been taken over.
        """
        try:
            found = ask()
        except StoreError as error:
            if isinstance(error, FencedError) or time.monotonic() - self._answered > PATIENCE_S:
                raise
            return None
        self._answered = time.monotonic()
        return found

    def _state(self) -> str | None:
        """The run's state; waits for a database that does not answer, but not against the user's will (None)."""
        while True:
            state = self._patiently(lambda: get_run(self.db, self.run.name).state)
            if state is not None or self._interrupts:
                return state
            time.sleep(POLL_S)

    def _show(self) -> None:
        try:
            self.view.show(read_status(self.db, self.run.name))
            self._trouble = ""
        except StoreError as error:  # what it means for the run is for the roles to find out
            if str(error) != self._trouble:
                self._trouble = str(error)
                self.view.say(f"{error}; trying again for {PATIENCE_S:.0f} s")

    def _progress(self, role: str) -> int:
        """How far a role has come with its own work; the others may get on without it for a while."""
        if role == "rollout":
            return max((w.env_steps for w in workers(self.db, self.run.id) if w.role == role), default=0)
        if role == "renderer":
            return last_drawn_ms(self.db, self.run.id)
        return newest_version(self.db, self.run.id) if role == "reward" else counts(self.db, self.run.id)["answered"]

    def _restart_dead(self) -> bool:
        """Start roles that have died again; False if one is still to be started."""
        complete = True
        for child in list(self.children.values()):
            code = child.process.poll()
            if code is None or (code == 0 and get_run(self.db, self.run.name).state == "done"):
                continue
            if code == UNREACHABLE and time.monotonic() - child.started < BACK_OFF_S:
                complete = False
            else:
                self._restart(child)
        return complete

    def _restart(self, child: Child) -> None:
        code, words = child.process.returncode, last_words(child.log)
        if code == FENCED:
            self._give_up(child)
            return
        progress = self._progress(child.role)
        lucky = progress > child.progress or (code in HARMLESS and time.monotonic() - child.started > LUCKY_AFTER_S)
        n_deaths = 1 if lucky else child.n_deaths + 1
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        message = f"{child.role} {how}" + (f": {words.splitlines()[-1]}" if words and code > 0 else "")
        if n_deaths >= MAX_DEATHS or code == REFUSED:
            add_event(self.db, self.run.id, "supervisor", "failed", message)
            raise PrefrlError(self._end(child, how, words, n_deaths))
        add_event(self.db, self.run.id, "supervisor", "restart", f"{message}; started again")
        self.view.say(f"{message}; started again")
        self.children[child.role] = self._start(child.role, n_deaths, max(progress, child.progress))

    def _end(self, child: Child, how: str, words: str, n_deaths: int) -> str:
        """Why the run stops, and how it goes on; one that was refused has said why in its last line."""
        if child.process.returncode == REFUSED and words:
            why = f"{child.role}: {words.splitlines()[-1].removeprefix('prefrl: ')} (log: {child.log})\n"
        else:
            times = f"died {n_deaths} times without getting any further, and the last time {how}"
            why = f"{child.role} {times}. Its last words ({child.log}):\n{words}\n"
        return (
            f"run {self.run.name!r} stops: {why}Everything up to its last checkpoint is kept; mend the cause and type: "
            f"prefrl resume {typed(self.run.name, self.url, self.db.url)}"
        )

    def _give_up(self, child: Child) -> None:
        """A process elsewhere has taken the role over: leave it to that one."""
        message = f"{child.role} was taken over by another process; this supervisor leaves it alone"
        add_event(self.db, self.run.id, "supervisor", "taken over", message)
        self.view.say(message)
        del self.children[child.role]
        if child.role == "rollout":
            raise FencedError(f"run {self.run.name!r}: {message} and stops, since the run goes on there")

    def _finish(self) -> bool:
        """End the other roles, politely first; a second Ctrl-C ends them at once."""
        done = self._state() == "done"
        if self._interrupts:
            self.view.say(STOPPING)
        elif done and self._patiently(self._people_answer):
            self.view.say("all steps are done; the run ends when nobody has answered for half a minute (Ctrl-C twice)")
        if not done:
            for child in self.children.values():
                _send(child, signal.SIGTERM)
        deadline = time.monotonic() + STOP_WITHIN_S
        while self._interrupts < 2 and time.monotonic() < deadline:
            # once done, the last comparisons of the budget are still being asked, answered and fitted
            complete = self._patiently(self._restart_dead) if done else True
            if complete and not self._any_running():
                break
            if done and self._patiently(self._people_answer):
                deadline = time.monotonic() + STOP_WITHIN_S
                self._look_at_page()
            time.sleep(POLL_S)
        self._kill()
        state = self._state()
        if state != "done":
            set_run_state(self.db, self.run.id, "stopped")
        self._show()
        return state == "done"

    def _people_answer(self) -> bool:
        return self.config.label.oracle == "none" and still_answering(self.db, self.run.id)

    def _any_running(self) -> bool:
        return any(child.process.poll() is None for child in self.children.values())

    def _kill(self) -> None:
        for child in self.children.values():
            _send(child, signal.SIGKILL)
            child.process.wait()


HARMLESS = (0, INTERRUPTED, -signal.SIGKILL, -signal.SIGTERM)  # someone ended it; a crash would come again
REFUSED = 2  # a worker's exit code for a PrefrlError: the same again would end the same


def _send(child: Child, number: signal.Signals) -> None:
    if child.process.poll() is None:
        os.killpg(child.process.pid, number)


def last_words(log: Path, n: int = 20) -> str:
    """The last lines of a log file."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-n:])
