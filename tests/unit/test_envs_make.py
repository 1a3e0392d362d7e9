"""make_env, probe_env, env_versions and check_env: what they refuse, and what they promise."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from prefrl.envs.check import check_env
from prefrl.envs.make import check_spaces, env_versions, make_env, probe_env
from prefrl.errors import EnvError

BOX = spaces.Box(-10.0, 10.0, (2,), np.float32)
TWO = spaces.Discrete(2)


class Toy(gym.Env[Any, Any]):
    """Counts its steps; goes wrong in the way and at the step that a test asks for."""

    def __init__(self, obs=BOX, act=TWO, fault="", at=7, limit=None, start=None):
        self.observation_space, self.action_space = obs, act
        self.fault, self.at, self.limit, self.start = fault, at, limit, start
        self.lives = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.lives += 1
        first = self.np_random.uniform() if self.start is None else self.start
        self.obs = np.array([first, self.lives], np.float32)
        return self.obs.copy(), {"lives": self.lives}

    def step(self, action):
        self.t += 1
        obs, reward, terminated = self.obs + np.float32([self.t / 1000, 0]), 1.0, False
        if self.t == self.at:
            match self.fault:
                case "nan":
                    obs[1] = np.nan
                case "inf reward":
                    reward = float("inf")
                case "shape":
                    obs = np.zeros(3, np.float32)
                case "array reward":
                    reward = np.array([1.0])
                case "crash":
                    raise ZeroDivisionError("by zero")
                case "random":
                    obs[0] = np.random.default_rng().uniform()  # not seeded on purpose
                case "end":
                    terminated = True
        return obs, reward, terminated, self.t == self.limit, {}


@pytest.fixture
def toy() -> Any:
    """Register a toy environment and return its id; unregistered afterwards."""
    ids = []

    def add(entry_point: Callable[..., Any] = Toy, **kwargs: Any) -> str:
        env_id = f"prefrl-test/Toy{len(ids)}-v0"
        steps = kwargs.pop("max_episode_steps", None)
        gym.register(env_id, entry_point, kwargs=kwargs, max_episode_steps=steps)
        ids.append(env_id)
        return env_id

    yield add
    for env_id in ids:
        del gym.registry[env_id]


def length(env: gym.Env[Any, Any]) -> int:
    env.reset(seed=0)
    for step in range(1, 3000):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return step
    raise AssertionError("never ended")


def time_limits(env: gym.Env[Any, Any]) -> list[TimeLimit]:
    found = []
    while isinstance(env, gym.Wrapper):
        found += [env] if isinstance(env, TimeLimit) else []
        env = env.env
    return found


# Names.


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("hoper", "hopper"),
        ("Cheeta", "cheetah"),
        ("CartPole-v7", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("prefrl/Walker-v1", "prefrl/Walker-v0"),
    ],
)
def test_an_unknown_id_names_the_nearest(wrong, near):
    with pytest.raises(EnvError, match=f"unknown environment '{wrong}'.*{near}"):
        make_env(wrong)


def test_an_id_like_no_other_lists_the_tasks():
    with pytest.raises(EnvError, match="the tasks are cheetah, hopper"):
        make_env("xyzzy")


def test_a_module_that_cannot_be_imported():
    with pytest.raises(EnvError, match="'no_such_module' cannot be imported"):
        make_env("no_such_module:Env-v0")


def test_a_module_that_registers_its_ids():
    assert length(make_env("gymnasium.envs.classic_control:Pendulum-v1")) == 200


def test_wrong_keyword_arguments():
    with pytest.raises(EnvError, match=r"prefrl/Hopper-v0 cannot be made with env.kwargs \{'colour': 3\}"):
        make_env("hopper", kwargs={"colour": 3})


@pytest.mark.parametrize("options", [{"ends": "maybe"}, {"horizon": 0}])
def test_wrong_options(options):
    with pytest.raises(EnvError, match=r"maybe.*refuse, reset, allow|horizon is 0"):
        make_env("pendulum", **options)


def test_a_render_mode_that_does_not_exist():
    with pytest.raises(EnvError, match="cannot draw with render_mode='hologram'"):
        make_env("CartPole-v1", render_mode="hologram")


# Spaces.


@pytest.mark.parametrize(
    "obs",
    [
        spaces.Dict({"a": BOX}),
        spaces.Tuple([BOX]),
        spaces.Discrete(5),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(0, 255, (128,), np.uint8),
        spaces.Box(-1, 1, (2, 2)),
    ],
    ids=str,
)
def test_observation_spaces_that_are_refused(toy, obs):
    env_id = toy(obs=obs)
    with pytest.raises(EnvError, match=f"{env_id}: the observation space must be") as caught:
        make_env(env_id)
    assert str(obs) in str(caught.value)


@pytest.mark.parametrize(
    "act",
    [
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.Dict({"a": BOX}),
        spaces.Discrete(3, start=1),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Box(0, 9, (2,), np.int64),
    ],
    ids=str,
)
def test_action_spaces_that_are_refused(toy, act):
    env_id = toy(act=act)
    with pytest.raises(EnvError, match=f"{env_id}: .*action space must") as caught:
        make_env(env_id)
    assert str(act) in str(caught.value)


def test_spaces_that_are_accepted():
    for act in (spaces.Discrete(3), spaces.Box(-2, 5, (1,))):
        check_spaces("toy", Toy(act=act))


# Horizon.


def test_an_environment_that_never_ends_gets_a_horizon(toy):
    assert length(make_env(toy())) == 1000
    assert length(make_env(toy(), horizon=12)) == 12


def test_exactly_one_time_limit(toy):
    env_ids = [toy(max_episode_steps=30), toy(lambda **kwargs: TimeLimit(Toy(**kwargs), 20))]
    for env_id, own in zip(env_ids, (30, 20), strict=True):
        for horizon, expected in ((None, own), (11, 11), (44, 44)):
            env = make_env(env_id, horizon=horizon)
            assert len(time_limits(env)) == 1
            assert length(env) == expected
            assert env.spec is not None
            assert env.spec.max_episode_steps == expected


def test_a_limit_below_another_wrapper_is_taken_out_too(toy):
    env_id = toy(lambda: gym.wrappers.ClipReward(TimeLimit(Toy(), 20), -1.0, 1.0))
    assert length(make_env(env_id)) == 20
    assert length(make_env(env_id, horizon=25)) == 25


def test_the_horizon_of_a_task_can_be_changed():
    assert length(make_env("pendulum", horizon=150)) == 150
    assert length(make_env("prefrl/Reacher-v0")) == 50


# Early ends.


def test_an_early_end_is_refused_with_its_step_and_the_mends():
    env = make_env("CartPole-v1")
    env.reset(seed=0)
    with pytest.raises(EnvError, match="CartPole-v1: the episode terminated at step 8 of 500") as caught:
        _ = [env.step(1) for _ in range(20)]
    assert "--env.ends reset" in str(caught.value)
    assert "--env.ends allow" in str(caught.value)


def test_truncation_by_the_environment_itself_is_an_early_end_too(toy):
    with pytest.raises(EnvError, match="truncated by the environment at step 5 of 50"):
        length(make_env(toy(limit=5), horizon=50))


def test_a_hidden_reset_shows_only_in_the_info():
    env = make_env("CartPole-v1", ends="reset")
    env.reset(seed=0)
    hidden, obs = [], None
    for step in range(1, 501):
        obs, reward, terminated, truncated, info = env.step(1)
        assert not terminated
        assert truncated == (step == 500)
        assert reward == 1.0
        if info.get("hidden_reset"):
            hidden.append(step)
            assert np.abs(obs).max() <= 0.05  # the first observation of a life
        assert np.allclose(info["state"], obs)  # and the state belongs to it
    assert hidden[0] == 8
    assert 40 < len(hidden) < 65


def test_hidden_resets_start_differently(toy):
    env = make_env(toy(fault="end", at=3), horizon=30, ends="reset")
    env.reset(seed=0)
    steps = [env.step(0) for _ in range(30)]
    firsts = [obs[0] for obs, _, _, _, info in steps if "hidden_reset" in info]
    assert len(firsts) == 9  # at 3, 6, …, 27; the end at 30 is the horizon's own
    assert len(set(firsts)) == 9
    assert steps[2][4]["lives"] == 2


def test_an_end_at_the_horizon_is_a_truncation(toy):
    for ends in ("refuse", "reset"):
        env = make_env(toy(fault="end", at=7), horizon=7, ends=ends)
        env.reset(seed=0)
        *_, terminated, truncated, info = [env.step(0) for _ in range(7)][-1]
        assert (terminated, truncated) == (False, True)
        assert "hidden_reset" not in info


def test_ends_can_be_allowed():
    env = make_env("CartPole-v1", ends="allow")
    env.reset(seed=0)
    ends = [env.step(1)[2] for _ in range(8)]
    assert ends == [False] * 7 + [True]


# Values and probing.


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", r"observation at step 7 is not finite \(entry 1 is nan\)"),
        ("inf reward", "reward at step 7 is inf"),
        ("shape", r"observation at step 7 has shape \(3,\).*\(2,\)"),
        ("array reward", r"reward at step 7 is \[1.\], not one finite number"),
        ("crash", "step 7 failed: ZeroDivisionError: by zero"),
        ("end", "terminated at step 7 of 1000"),
    ],
)
def test_probing_names_environment_and_step(toy, fault, message):
    env_id = toy(fault=fault)
    with pytest.raises(EnvError, match=f"{env_id}: .*{message}"):
        probe_env(env_id)


def test_probing_stops_after_2000_steps(toy):
    probe_env(toy(fault="nan", at=2001), horizon=5000)
    with pytest.raises(EnvError, match="step 2000 "):
        probe_env(toy(fault="nan", at=2000), horizon=5000)


def test_probing_good_environments():
    probe_env("pendulum")
    probe_env("Pendulum-v1", seed=3)
    probe_env("CartPole-v1", ends="reset")
    probe_env("CartPole-v1", ends="allow")
    with pytest.raises(EnvError, match="CartPole-v1: the episode terminated"):
        probe_env("CartPole-v1")


def test_values_are_checked_during_a_run_too(toy):
    with pytest.raises(EnvError, match="step 300 is not finite"):
        length(make_env(toy(fault="nan", at=300)))


# Seeding and versions.


@pytest.mark.parametrize("env_id", ["hopper", "Pendulum-v1"])
def test_twenty_episodes_start_differently(env_id):
    env = make_env(env_id, horizon=2)
    starts = [env.reset(seed=0)[0].tobytes()]
    for _ in range(19):
        env.step(env.action_space.sample())
        starts.append(env.reset()[0].tobytes())
    assert len(set(starts)) == 20
    assert env.reset(seed=0)[0].tobytes() == starts[0]


def test_versions_name_what_defines_the_task():
    assert env_versions("hopper") == {
        "env_id": "prefrl/Hopper-v0",
        "base": "gymnasium.envs.mujoco.hopper_v5:HopperEnv",
        "gymnasium": metadata.version("gymnasium"),
        "mujoco": metadata.version("mujoco"),
        "observation_space": "Box(-inf, inf, (11,), float64)",
        "action_space": "Box(-1.0, 1.0, (3,), float32)",
    }
    assert env_versions("prefrl/Hopper-v0") == env_versions("hopper")
    assert "mujoco" not in env_versions("Pendulum-v1")
    assert "105" in env_versions("ant", {"include_cfrc_ext_in_observation": True})["observation_space"]


# The checker for plug-in authors.


def test_check_env_accepts_a_good_one(toy):
    env_id = toy()
    check_env(lambda: make_env(env_id, horizon=20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fault": "end"}, "terminated at step 7: its length leaks"),
        ({"fault": "nan", "limit": 9}, "at step 7 is not finite"),
        ({"fault": "inf reward", "limit": 9}, "at step 7 is not finite"),
        ({"fault": "shape", "limit": 9}, "shape"),
        ({"fault": "random", "limit": 9}, "the same actions differ"),
        ({"start": 0.0, "limit": 9}, "start alike"),
        ({}, "not ended after 5000 steps"),
        ({"act": spaces.MultiBinary(2)}, "action space"),
    ],
)
def test_check_env_names_the_reason(options, message):
    class Alike(Toy):
        def reset(self, *, seed=None, options=None):
            obs, info = super().reset(seed=seed, options=options)
            obs[1] = 0  # the number of lives would make equal starts differ
            return obs, info

    with pytest.raises(EnvError, match=message):
        check_env(lambda: Alike(**options))


def test_check_env_finds_lengths_that_vary():
    class Varying(Toy):
        def step(self, action):
            obs, reward, terminated, _, info = super().step(action)
            return obs, reward, terminated, self.t == 10 + self.lives, info

    with pytest.raises(EnvError, match=r"different lengths \(11, 12, 13 steps\)"):
        check_env(Varying)
