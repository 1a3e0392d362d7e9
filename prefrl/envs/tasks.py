"""The tasks of the paper as plain data: ids, lengths, speeds, instructions, cameras."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from prefrl.games import ALONGSIDE, FPS, GAME_IDS, GAMES, SEGMENT_STEPS


@dataclass(frozen=True)
class Task:
    """One task of the paper (sections 3.1.1 and 3.2, appendix A.1).

    Attributes:
        name: What people type, e.g. ``hopper``.
        env_id: Registered Gymnasium id.
        horizon: Steps of every episode; None for a game, which is one episode without an end. The paper removes all
            variable-length episodes; it does not give the horizons of the two pendulums, so their 100 is our choice.
        segment_steps: Steps of a clip: 1.5 seconds of video at ``fps``, 1.7 of a game.
        fps: Frames a second at which a clip is shown (video speed, not the simulator's clock).
        entropy: Coefficient of the policy's entropy bonus while it learns from the predicted reward.
        instructions: What an annotator is asked to look for, and what breaks a tie.
        camera: Keyword arguments given to the environment when it draws.
        true_reward: False for a behaviour that nobody has a formula for: only people can teach it, and its
            environment's reward is always 0.
        comparisons: How many people taught it with, where that differs from 700, or None.
    """

    name: str
    env_id: str
    horizon: int | None
    segment_steps: int
    fps: int
    entropy: float = 0.01
    instructions: str = ""
    camera: dict[str, Any] = field(default_factory=dict, hash=False)
    true_reward: bool = True
    comparisons: int | None = None


_TRACK = {"camera_name": "track"}  # follows the body; the default view of these models stays behind


def _side_view(distance: float, z: float, elevation: float = -10.0) -> dict[str, Any]:
    """A camera at rest that keeps the whole range of motion in the picture."""
    config = {"distance": distance, "lookat": (0.0, 0.0, z), "azimuth": 90.0, "elevation": elevation}
    return {"default_camera_config": config}


# wide enough for a body that turns over in the air, and level, so that the height of a jump is seen
_JUMPS = {
    "default_camera_config": {
        "trackbodyid": 1,
        "distance": 3.6,
        "lookat": (0.0, 0.0, 1.0),
        "azimuth": 90.0,
        "elevation": -5.0,
    }
}

_MUJOCO = (
    Task(
        name="cheetah",
        env_id="prefrl/Cheetah-v0",
        horizon=1000,
        segment_steps=30,
        fps=20,
        instructions="Prefer the clip in which the cheetah moves further to the right. "
        "Only speed counts; standing still beats moving left.",
        camera=_TRACK,
    ),
    Task(
        name="hopper",
        env_id="prefrl/Hopper-v0",
        horizon=1000,
        segment_steps=60,
        fps=40,
        instructions="Watch the joint nearest the pointed end: prefer the clip in which it travels "
        "further right (going left is worse than staying). If about equal, prefer the higher joint.",
        camera=_TRACK,
    ),
    Task(
        name="walker",
        env_id="prefrl/Walker-v0",
        horizon=1000,
        segment_steps=45,
        fps=30,
        instructions="Watch the joint where the three limbs meet: prefer the clip in which it travels "
        "further right (going left is worse than staying). If about equal, prefer the higher joint.",
        camera=_TRACK,
    ),
    Task(
        name="ant",
        env_id="prefrl/Ant-v0",
        horizon=1000,
        segment_steps=30,
        fps=20,
        instructions="Prefer the clip in which the ant stands upright; if neither or both do, the one with "
        "the higher centre. If still about equal, prefer faster motion to the right.",
        camera=_TRACK,
    ),
    Task(
        name="swimmer",
        env_id="prefrl/Swimmer-v0",
        horizon=1000,
        segment_steps=60,
        fps=40,
        entropy=0.001,
        instructions="Watch the middle of the body: prefer the clip in which it swims further to the right. "
        "If about equal, call it a tie.",
        camera=_TRACK,
    ),
    Task(
        name="reacher",
        env_id="prefrl/Reacher-v0",
        horizon=50,
        segment_steps=15,
        fps=10,
        instructions="Prefer the clip in which the green tip of the arm stays nearer to the red dot. "
        "Holding a middle distance beats being near at first and far afterwards.",
        camera=_side_view(distance=0.85, z=0.0, elevation=-90.0),
    ),
    Task(
        name="pendulum",
        env_id="prefrl/Pendulum-v0",
        horizon=100,
        segment_steps=15,
        fps=10,
        instructions="Prefer the clip in which the pole points more nearly straight up. "
        "If it hangs down about equally in both, call it a tie.",
        camera=_side_view(distance=4.0, z=0.0),
    ),
    Task(
        name="double-pendulum",
        env_id="prefrl/DoublePendulum-v0",
        horizon=100,
        segment_steps=15,
        fps=10,
        instructions="Prefer the clip in which both poles stand up, with the cart near the centre. "
        "Standing steadily beats going up and down.",
        camera=_side_view(distance=5.5, z=0.0),
    ),
    # The paper prints no instructions for its two novel behaviours, since its authors compared the clips themselves;
    # their speeds and the hopper's horizon are our choice.
    Task(
        name="backflip-hopper",
        env_id="prefrl/BackflipHopper-v0",
        horizon=120,
        segment_steps=120,  # a clip is a whole attempt from standing, 0.96 s of the simulator: a flip takes 0.6 s
        fps=80,
        instructions="Prefer the clip in which the hopper turns further backwards in the air, up to once around; what "
        "it does after a fall does not count. Landing on the foot beats falling, and of two landed flips the one that "
        "stays upright for longer is better. If about equal, call it a tie.",
        camera=_JUMPS,
        true_reward=False,
        comparisons=900,
    ),
    Task(
        name="one-leg-cheetah",
        env_id="prefrl/OneLegCheetah-v0",
        horizon=1000,
        segment_steps=30,
        fps=20,
        instructions="Prefer the clip in which the cheetah moves further to the right on one leg, the other foot off "
        "the floor. If about equal, prefer the one that keeps the other leg higher.",
        camera=_TRACK,
        true_reward=False,
        comparisons=800,
    ),
)


def _game(name: str, env_id: str, instructions: str = "", comparisons: int = 5500, **more: Any) -> Task:
    return Task(name, env_id, None, SEGMENT_STEPS, FPS, instructions=instructions, comparisons=comparisons, **more)


_GAMES = (
    *(_game(name, GAME_IDS[name], game.instructions) for name, game in GAMES.items()),
    _game(
        ALONGSIDE,
        GAME_IDS[ALONGSIDE],
        "Prefer the clip in which you stay more nearly even with another car. Passing cars and being passed are both "
        "bad; having no car around is fine.",
        true_reward=False,
        comparisons=1300,
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in (*_MUJOCO, *_GAMES)}


def find_task(name: str) -> Task | None:
    """Return the task of that name or Gymnasium id, or None where there is none.

    Each game of the emulator is one, too: ``ALE/Pong-v5`` is ``pong``, and ``ALE/Alien-v5`` a task without
    instructions, whose name is its id.
    """
    rom = re.fullmatch(r"ALE/(\w+)-v5", name)
    if rom:
        known = next((game.name for game in GAMES.values() if game.rom == rom[1]), None)
        return TASKS[known] if known else _game(name, name)
    return TASKS.get(name) or next((task for task in TASKS.values() if task.env_id == name), None)


def has_true_reward(env_id: str) -> bool:
    """Whether an environment, named as for :func:`prefrl.envs.make.make_env`, has a reward that means anything."""
    task = find_task(env_id.rpartition(":")[2])
    return task is None or task.true_reward
