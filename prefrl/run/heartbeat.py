"""The sign of life of a role, given by a thread of its own: a long update is not a death."""

from __future__ import annotations

import threading

from prefrl.errors import FencedError, StoreError
from prefrl.store.engine import Database
from prefrl.store.runs import Run, get_run
from prefrl.store.workers import beat, claim, release

BEAT_EVERY_S = 1.0


class Heartbeat:
    """Holds a role of a run for this process until ``close``.

    Args:
        db: The run's database.
        run: The run.
        role: Name of the role; taking it over stops an older process of the same role.
    """

    def __init__(self, db: Database, run: Run, role: str) -> None:
        self.db, self.run = db, run
        self.token = claim(db, run.id, role)
        self.run_state = run.state
        self.env_steps: int | None = None
        self.state = "starting"  # for people; the next heartbeat tells it
        self._lock = threading.Lock()  # or the thread could write older agent steps over newer ones
        self._fenced: FencedError | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, daemon=True, name="heartbeat")
        self._thread.start()

    def say(self, env_steps: int | None, state: str) -> None:
        """Tell how far the role is: at once where the agent steps have changed, else with the next heartbeat.

        Raises:
            FencedError: Another process has taken the role over.
        """
        self.check()
        moved = env_steps != self.env_steps
        self.env_steps, self.state = env_steps, state
        if moved:
            self._beat()

    def check(self) -> None:
        """Raise what the thread has found.

        Raises:
            FencedError: Another process has taken the role over.
        """
        if self._fenced is not None:
            raise self._fenced

    def close(self, *, orderly: bool = True) -> None:
        """Tell the last state and give the role up; one that failed keeps it, since it will be started again."""
        self._closed.set()
        self._thread.join()
        if not orderly:
            return
        if self._fenced is None:
            self._beat()
        release(self.db, self.token)

    def _beat(self) -> None:
        with self._lock:
            beat(self.db, self.token, env_steps=self.env_steps, state=self.state)
        self.look()

    def look(self) -> None:
        """Read the run's state."""
        self.run_state = get_run(self.db, self.run.name).state

    def _beat_on(self) -> None:
        while not self._closed.wait(BEAT_EVERY_S):
            try:
                self._beat()
            except FencedError as error:
                self._fenced = error
                return
            except StoreError:
                continue  # the role meets the same trouble in its own work, and says so
