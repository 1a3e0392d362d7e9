"""Environments as the paper changed them: no early ends, no torque costs, true reward for the oracle only.

Importing this package registers the ids of :data:`prefrl.envs.tasks.TASKS` with Gymnasium, so that
``import prefrl.envs`` before, or ``gymnasium.make("prefrl.envs:prefrl/Hopper-v0")``, is all it takes.
"""

from __future__ import annotations

from functools import partial as _partial

from gymnasium.envs.registration import register as _register
from gymnasium.envs.registration import registry as _registry

from prefrl.envs.atari import build as _build_game
from prefrl.envs.tasks import TASKS, Task, find_task

__all__ = ["TASKS", "Task", "find_task", "register"]


def register() -> None:
    """Register the paper's tasks with Gymnasium; calling it again changes nothing.

    Cheap on purpose: neither MuJoCo, nor the Atari emulator, nor torch is imported here.
    """
    for task in TASKS.values():
        if task.env_id not in _registry:
            builder = f"prefrl.envs.mujoco:{task.name.replace('-', '_')}"
            _register(
                id=task.env_id,
                entry_point=builder if task.horizon else _partial(_build_game, task.name),
                max_episode_steps=task.horizon,
            )


register()
