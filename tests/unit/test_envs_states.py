"""Recorded simulator states: what is recorded, and that drawing from them is faithful and harmless."""

from __future__ import annotations

import os
import subprocess
import sys
import timeit
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from prefrl.envs.make import make_env
from prefrl.envs.states import StateInInfo, set_state
from prefrl.errors import EnvError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("env_id", ["hopper", "ant", "CartPole-v1", "MountainCar-v0", "Pendulum-v1"])
def test_the_state_is_the_one_after_the_step(env_id):
    env = make_env(env_id)
    _, info = env.reset(seed=0)
    states = [info["state"]]
    for _ in range(5):
        states.append(env.step(env.action_space.sample())[4]["state"])
    simulator = env.unwrapped
    expected = simulator.state_vector() if env_id in ("hopper", "ant") else simulator.state
    assert np.array_equal(states[-1], np.array(expected, dtype=np.float64))
    assert all(state.dtype == np.float64 and state.ndim == 1 for state in states)
    assert len({state.tobytes() for state in states}) == len(states)  # copies, not views of one array


def test_states_can_be_left_out():
    env = make_env("pendulum", record_states=False)
    assert "state" not in env.reset(seed=0)[1]
    assert "state" not in env.step(env.action_space.sample())[4]


class Stateless(gym.Env[np.ndarray, int]):
    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("state", [None, "text", object(), {"x": 1}])
def test_an_environment_without_a_usable_state_has_no_key(state):
    bare = Stateless()
    if state is not None:
        bare.state = state
    env = StateInInfo(bare)
    assert "state" not in env.reset(seed=0)[1]
    assert "state" not in env.step(0)[4]
    with pytest.raises(EnvError, match="Stateless keeps no state"):
        set_state(env, np.zeros(3))


@pytest.mark.parametrize("env_id", ["hopper", "CartPole-v1", "MountainCar-v0", "Pendulum-v1"])
def test_set_state_puts_a_state_back_even_before_a_reset(env_id):
    env = make_env(env_id)
    state = env.reset(seed=0)[1]["state"] + 0.01
    fresh = make_env(env_id)
    set_state(fresh, state)
    simulator = fresh.unwrapped
    found = simulator.state_vector() if env_id == "hopper" else simulator.state
    assert np.array_equal(np.array(found), state)


def test_the_last_torque_of_pendulum_is_not_drawn_beside_another_state():
    env = make_env("Pendulum-v1")
    _, info = env.reset(seed=0)
    env.step(env.action_space.high)
    assert env.unwrapped.last_u is not None
    set_state(env, info["state"])
    assert env.unwrapped.last_u is None


def test_a_state_of_another_size_is_refused():
    with pytest.raises(EnvError, match=r"prefrl/Hopper-v0 has a state of shape \(12,\).*\(18,\)"):
        set_state(make_env("hopper"), np.zeros(18))


def test_recording_never_changes_the_trajectory():
    def rollout(record_states: bool) -> list[bytes]:
        env = make_env("hopper", record_states=record_states)
        obs = [env.reset(seed=5)[0]]
        env.action_space.seed(5)
        obs += [env.step(env.action_space.sample())[0] for _ in range(200)]
        return [each.tobytes() for each in obs]

    assert rollout(True) == rollout(False)


def test_recording_is_cheap():
    env = make_env("ant", record_states=False)
    env.reset(seed=0)
    result = (0.0, 0.0, False, False, dict[str, object]())

    class Instant(gym.Wrapper):
        def step(self, action):
            return result

    def seconds(each: gym.Env) -> float:
        each.reset()
        return min(timeit.repeat(lambda: each.step(0), number=2000, repeat=5)) / 2000

    # about 1 microsecond; the bound is the promise of 5 with room for a loaded machine
    assert seconds(StateInInfo(Instant(env))) - seconds(Instant(env)) < 15e-6


DRAW = """
import sys
import numpy as np
from prefrl.envs.make import make_env
from prefrl.envs.states import set_state

name = sys.argv[1]
live, twin, drawing = (make_env(name, render_mode="rgb_array") for _ in range(3))
quiet = make_env(name, record_states=False)
_, info = live.reset(seed=2)
obs, _ = quiet.reset(seed=2)
twin.reset(seed=2)
quiet.action_space.seed(2)
states, frames, trace = [info["state"]], [live.render()], []
for step in range(40):
    action = quiet.action_space.sample()
    obs, *_ = quiet.step(action)
    seen, _, _, _, info = live.step(action)
    assert seen.tobytes() == obs.tobytes(), f"drawing changed the trajectory at step {step}"
    twin.step(action)
    if step % 13 == 0:
        live.render()
        states.append(info["state"])
        simulator = twin.unwrapped
        if name != "CartPole-v1":
            # a live frame shows the bodies one physics substep late; bring the twin's up to date
            import mujoco
            mujoco.mj_kinematics(simulator.model, simulator.data)
            mujoco.mj_comPos(simulator.model, simulator.data)
            mujoco.mj_camlight(simulator.model, simulator.data)
        frames.append(twin.render())
order = [3, 0, 2, 1]  # a drawing does not depend on what was drawn before
for i in order:
    set_state(drawing, states[i])
    drawn = drawing.render()
    assert drawn.dtype == np.uint8 and drawn.std() > 1
    assert np.array_equal(drawn, frames[i]), f"frame {i} differs in {(drawn != frames[i]).mean():.2%}"
assert not np.array_equal(frames[0], frames[3])
print("drawn")
"""

PROBE = """
import gymnasium
env = gymnasium.make("InvertedPendulum-v5", render_mode="rgb_array")
env.reset()
env.render()
"""


def _run(script: str, *args: str, gl: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MUJOCO_GL": gl, "SDL_VIDEODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    command = [sys.executable, "-c", script, *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=120, check=False)


@pytest.fixture(scope="module")
def gl():
    for name in ("egl", "osmesa"):
        if _run(PROBE, gl=name).returncode == 0:
            return name
    pytest.skip("neither EGL nor OSMesa can draw on this machine")


@pytest.mark.parametrize("name", ["hopper", "reacher", "ant"])
def test_frames_from_stored_states_equal_the_original_ones(name, gl):
    result = _run(DRAW, name, gl=gl)
    assert result.stdout == "drawn\n", result.stderr
