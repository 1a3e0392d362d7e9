"""The paper's MuJoCo tasks: registration, full horizons, and the true rewards by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from prefrl.envs import TASKS as ALL
from prefrl.envs import find_task, mujoco, register
from prefrl.envs.check import check_env
from prefrl.envs.make import make_env
from prefrl.envs.tasks import has_true_reward

ROOT = Path(__file__).parents[2]
TASKS = {name: task for name, task in ALL.items() if task.horizon}
OBS_SIZE = {
    "cheetah": 17,
    "hopper": 11,
    "walker": 17,
    "ant": 27,
    "swimmer": 8,
    "reacher": 10,
    "pendulum": 4,
    "double-pendulum": 9,
    "backflip-hopper": 13,
    "one-leg-cheetah": 17,
}
CLIPS = {  # recipe of the paper: clip steps, frames a second, horizon
    "cheetah": (30, 20, 1000),
    "hopper": (60, 40, 1000),
    "walker": (45, 30, 1000),
    "ant": (30, 20, 1000),
    "swimmer": (60, 40, 1000),
    "reacher": (15, 10, 50),
    "pendulum": (15, 10, 100),
    "double-pendulum": (15, 10, 100),
    "backflip-hopper": (120, 80, 120),
    "one-leg-cheetah": (30, 20, 1000),
}


def put(env: Any, qpos: list[float], qvel: list[float]) -> Any:
    simulator = env.unwrapped
    simulator.set_state(np.array(qpos, dtype=float), np.array(qvel, dtype=float))
    return simulator


def test_the_table_of_tasks():
    assert {n: (t.segment_steps, t.fps, t.horizon) for n, t in TASKS.items()} == CLIPS
    assert {name: t.entropy for name, t in TASKS.items() if t.entropy != 0.01} == {"swimmer": 0.001}
    for name, task in TASKS.items():
        assert task.segment_steps == 1.5 * task.fps
        assert task.name == name
        assert 40 < len(task.instructions) < 300
        assert len({hash(t) for t in TASKS.values()}) == len(TASKS)


def test_behaviours_that_only_people_can_teach():
    taught = {n: t.comparisons for n, t in TASKS.items() if not t.true_reward}
    assert taught == {"backflip-hopper": 900, "one-leg-cheetah": 800}, "the paper's numbers (section 3.2)"
    assert all(t.comparisons is None for t in TASKS.values() if t.true_reward)
    for name in taught:
        assert not has_true_reward(name)
        assert not has_true_reward(f"some.module:{TASKS[name].env_id}")
        env = make_env(name)
        env.reset(seed=0)
        env.action_space.seed(0)
        assert {env.step(env.action_space.sample())[1] for _ in range(50)} == {0.0}
        env.close()
    assert has_true_reward("hopper")
    assert has_true_reward("Hopper-v5")


def test_find_task_by_name_and_by_id():
    assert find_task("hopper") is TASKS["hopper"]
    assert find_task("prefrl/Hopper-v0") is TASKS["hopper"]
    assert find_task("Hopper-v5") is None


@pytest.mark.parametrize("name", TASKS)
def test_a_full_horizon_without_an_end(name):
    env = make_env(name)
    obs, _ = env.reset(seed=1)
    env.action_space.seed(1)
    for step in range(1, TASKS[name].horizon + 1):
        assert obs.shape == (OBS_SIZE[name],)
        assert obs.dtype == np.float64
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert isinstance(reward, float)
        assert not terminated
        assert truncated == (step == TASKS[name].horizon)
        assert "hidden_reset" not in info
    env.close()


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_registered_ids_pass_the_checker_of_gymnasium(task):
    env = gym.make(task.env_id)  # with the passive checker, whose warnings are errors here
    env.reset(seed=0)
    for _ in range(10):
        env.step(env.action_space.sample())
    assert env.spec is not None
    assert env.spec.max_episode_steps == task.horizon
    env.close()


def test_registering_again_changes_nothing():
    before = dict(gym.registry)
    register()
    assert dict(gym.registry) == before


@pytest.mark.parametrize(
    "make",
    ["import prefrl.envs; gymnasium.make('prefrl/Ant-v0')", "gymnasium.make('prefrl.envs:prefrl/Ant-v0')"],
)
def test_registration_imports_nothing_heavy(make):
    script = f"""
import sys, gymnasium
import prefrl.envs
assert not {{"torch", "mujoco", "stable_baselines3"}} & set(sys.modules)
{make}
assert "mujoco" in sys.modules and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, cwd=ROOT)


def test_the_cheetah_leaves_no_log_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_env("cheetah").close()
    assert list(tmp_path.iterdir()) == []


# The true rewards, each at a state set by hand.


def test_forward_reward_is_the_speed():
    assert mujoco.forward_reward(None, {"x_velocity": 2.5}) == 2.5


@pytest.mark.parametrize(
    ("name", "reward_fn", "z", "expected"),
    [("hopper", mujoco.hopper_reward, 1.25, 3.25), ("walker", mujoco.walker_reward, 1.25, 2.25)],
)
def test_hopper_and_walker_reward(name, reward_fn, z, expected):
    env = make_env(name)
    n_joints = env.unwrapped.model.nq - 2
    simulator = put(env, [7.0, z, *[0.1] * n_joints], [0.0] * env.unwrapped.model.nv)
    assert reward_fn(simulator, {"x_velocity": 2.0}) == pytest.approx(expected)  # 2 + 1 + (1.25 - 1 or 2)


def test_ant_reward():
    env = make_env("ant")
    simulator = put(env, [3.0, -4.0, 0.5, 1.0, 0.0, 0.0, 0.0, *[0.3] * 8], [0.0] * 14)
    assert mujoco.ant_reward(simulator, {"x_velocity": 1.5}) == pytest.approx(0.8)  # 1.5 + 0.5 - 1.2


def test_pendulum_reward():
    simulator = put(make_env("pendulum"), [0.7, 0.5], [3.0, -2.0])
    assert mujoco.pendulum_reward(simulator, {}) == pytest.approx(0.75)  # 1 - 0.25


@pytest.mark.parametrize(
    ("qpos", "qvel", "expected"),
    [
        # upright at x = 0.5: tip (0.5, 1.2); 10 - (0.01 * 0.25 + 0.64) - (1e-3 * 4 + 5e-3 * 9) + 2
        ([0.5, 0.0, 0.0], [0.0, 2.0, 3.0], 10 - 0.6425 - 0.049 + 2),
        # hanging at x = 0: tip (0, -1.2); 10 - 3.2^2 - 0 - 22
        ([0.0, np.pi, 0.0], [0.0, 0.0, 0.0], 10 - 10.24 - 22),
        # first pole level, second upright: tip (0.6, 0.6); 10 - (0.01 * 0.36 + 1.96) - 4
        ([0.0, np.pi / 2, -np.pi / 2], [0.0, 0.0, 0.0], 10 - 1.9636 - 4),
    ],
)
def test_double_pendulum_reward(qpos, qvel, expected):
    simulator = put(make_env("double-pendulum"), qpos, qvel)
    assert mujoco.double_pendulum_reward(simulator, {}) == pytest.approx(expected)


def test_reacher_reward_is_minus_the_distance():
    env = make_env("reacher")
    env.reset(seed=0)
    put(env, [0.0, 0.0, 0.1, 0.15], [0.0] * 4)  # arm stretched along x: the tip is at (0.21, 0)
    reward = mujoco.reacher_reward(env.unwrapped, env.unwrapped._get_rew(np.ones(2))[1])
    assert reward == pytest.approx(-np.hypot(0.11, 0.15), abs=1e-9)


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.true_reward])
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_no_torque_cost(name, strength):
    """Whatever the action was, the reward is the formula of the state that it led to."""
    env = make_env(name)
    env.reset(seed=3)
    x_before = env.unwrapped.data.qpos[0]
    _, reward, _, _, info = env.step(strength * env.action_space.high)
    data, dt = env.unwrapped.data, env.unwrapped.dt
    speed = (data.qpos[0] - x_before) / dt
    if name == "ant":  # measured at the torso's body, one substep behind qpos
        speed = info["x_velocity"]
    tip, target = (data.body(b).xpos for b in ("fingertip", "target")) if name == "reacher" else (0, 0)
    expected = {
        "cheetah": lambda: speed,
        "swimmer": lambda: speed,
        "hopper": lambda: speed + data.qpos[1],
        "walker": lambda: speed + data.qpos[1] - 1,
        "ant": lambda: speed + data.qpos[2] - 1.2,
        "reacher": lambda: -np.linalg.norm(tip - target),
        "pendulum": lambda: 1 - data.qpos[1] ** 2,
        "double-pendulum": lambda: mujoco.double_pendulum_reward(env.unwrapped, {}),
    }
    assert reward == pytest.approx(expected[name](), abs=1e-12)
    assert info.get("reward_ctrl", 0.0) == 0.0
    env.close()


@pytest.mark.parametrize("name", ["hopper", "walker", "ant", "pendulum", "double-pendulum"])
def test_falling_ends_nothing(name):
    env = make_env(name)
    env.reset(seed=0)
    fallen = np.array(env.unwrapped.init_qpos)
    if name == "ant":
        fallen[2] = 0.05  # below the healthy range
    else:
        fallen[1] = 2.5 if "pendulum" in name else 0.2
    put(env, list(fallen), [0.0] * env.unwrapped.model.nv)
    _, _, terminated, truncated, _ = env.step(np.zeros(env.action_space.shape, np.float32))
    assert not terminated
    assert not truncated


@pytest.mark.parametrize("name", ["pendulum", "reacher"])
def test_tasks_pass_our_own_checker(name):
    check_env(lambda: make_env(name))
