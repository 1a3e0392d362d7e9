"""All roles in one process, in a fixed order: bit-for-bit reproducible, for tests, papers and debugging."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from prefrl.errors import PrefrlError, StoreError
from prefrl.run.heartbeat import Heartbeat
from prefrl.run.settle import settle
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.runs import Run, set_run_state


class Role(Protocol):
    """A role with a bounded step."""

    name: str

    def step(self) -> bool:
        """Do one bounded piece of work; False if there was nothing to do."""

    def waiting_for(self) -> str:
        """What a role that has nothing to do waits for, in words."""


class Lockstep:
    """The surroundings of a rollout role whose fellow roles live in the same process."""

    def __init__(
        self, db: Database, run: Run, roles: Sequence[Role], stop: Callable[[], bool], show: Callable[[], None]
    ) -> None:
        self.db, self.run, self.roles, self._stop, self._show = db, run, roles, stop, show
        self.heart = Heartbeat(db, run, "rollout")

    def beat(self, env_steps: int, state: str) -> None:
        """Write the heartbeat, from which the reward role reads the agent steps."""
        self.heart.say(env_steps, state)

    def exchange(self) -> None:
        """Step the other roles in order until none has anything left to do."""
        while self._step_all():
            pass

    def wait(self) -> None:
        """Step the other roles; if none can do anything, nothing ever will.

        Raises:
            PrefrlError: The run cannot go on; says what is missing.
        """
        if not self._step_all():
            raise PrefrlError(
                "lockstep cannot go on: the rollout waits and no other role has anything to do; "
                "with people as annotators use the async mode, and check label.oracle"
            )

    def _step_all(self) -> bool:
        """One step of each role, in order (what is proposed is answered before it is fitted); True if any did."""
        self._show()
        worked = False
        for role in self.roles:
            worked |= role.step()
        return worked

    def stopping(self) -> bool:
        """True once the user asked to stop."""
        return self._stop()


def run_lockstep(
    db: Database,
    run: Run,
    stop: Callable[[], bool] = lambda: False,
    log_dir: str | None = None,
    show: Callable[[], None] = lambda: None,
) -> bool:
    """Run all roles to the end of the run, or until ``stop()`` or Ctrl-C; True if it reached the end.

    ``show`` is called at each exchange between the roles.
    """
    from prefrl.oracle.role import OracleRole
    from prefrl.reward_model.role import RewardRole
    from prefrl.rollout.role import RolloutRole

    config = from_dict(run.config)
    settle(config.policy.threads)
    roles: list[Role] = []
    if config.reward.source == "learned":
        roles = [RewardRole(db, run), OracleRole(db, run)]
    around = Lockstep(db, run, roles, stop, show)
    set_run_state(db, run.id, "running")
    finished = False
    try:
        with contextlib.suppress(KeyboardInterrupt):  # its traceback may hold a transaction open
            rollout = RolloutRole(db, run, around, log_dir)
            rollout.run_to_end()
            finished = rollout.finished
    except BaseException:
        with contextlib.suppress(StoreError):  # the first error tells more
            set_run_state(db, run.id, "failed")
        raise
    finally:
        around.heart.close()
    set_run_state(db, run.id, "done" if finished else "stopped")
    return finished
