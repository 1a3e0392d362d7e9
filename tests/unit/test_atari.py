"""Atari games: one endless episode, the oracle's reward beside the true score, and what is refused."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.monitor import Monitor

from prefrl.config import EnvConfig
from prefrl.envs import atari
from prefrl.envs.atari import AtariEnv
from prefrl.envs.make import check_spaces, env_versions, make_env, probe_env
from prefrl.envs.tasks import find_task, has_true_reward
from prefrl.errors import EnvError
from prefrl.games import ALONGSIDE, GAMES, is_game
from prefrl.rollout.role import make_venv

Step = tuple[Any, float, Any, dict[str, Any]]  # observation before, reward, observation after, info


def play(env: Any, n: int, seed: int | None = 0) -> Iterator[Step]:
    """Random steps, from a reset on where there is a seed."""
    obs = None
    if seed is not None:
        obs, _ = env.reset(seed=seed)
        env.action_space.seed(seed)
    for _ in range(n):
        after, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert not terminated
        assert not truncated
        yield obs, reward, after, info
        obs = after


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """Games of 400 frames; returns how many steps that is at most."""
    monkeypatch.setitem(atari.EMULATOR, "max_num_frames_per_episode", 400)
    return 100


@pytest.mark.parametrize("size", [84, 42])
def test_observations_are_stacks_that_slide_on_where_a_game_ends(size: int, short: int) -> None:
    env = make_env("breakout", kwargs={"size": size})
    check_spaces("breakout", env)
    n_games = 0
    for before, _, after, info in play(env, 3 * short):
        assert env.observation_space.contains(after)
        assert after.shape == (4, size, size)
        assert np.array_equal(after[:-1], before[1:])
        n_games += "hidden_reset" in info
    assert n_games >= 3
    first, _ = env.reset()
    assert (first == first[0]).all()
    assert first.any()


def test_the_score_is_the_emulators_and_the_reward_its_sign() -> None:
    """Frame by frame in an emulator of its own: points of all four frames, the last two of them pooled."""
    env = make_env("breakout", record_states=False)
    env.reset(seed=0)
    other = AtariEnv(GAMES["breakout"])
    other.restore_state(env.unwrapped.clone_state())
    bare, cv2 = other._ale, other._cv2
    total = n_steps = 0
    lives = set()
    env.action_space.seed(0)
    while not bare.game_over():
        action = env.action_space.sample()
        obs, reward, _, _, info = env.step(action)
        points, screens = 0, []
        for _ in range(4):
            points += bare.act(bare.getMinimalActionSet()[action])
            screens.append(bare.getScreenGrayscale())
        total += points
        n_steps += 1
        lives.add(bare.lives())
        if bare.game_over():
            continue
        assert "hidden_reset" not in info, "a lost life is no end"
        assert reward == np.sign(points)
        pooled = np.maximum(*screens[-2:])
        pooled[0:16, 35:80] = 0
        assert np.array_equal(obs[-1], cv2.resize(pooled, (84, 84), interpolation=cv2.INTER_AREA))
    assert lives == {0, 1, 2, 3, 4, 5}
    assert info["hidden_reset"] is info["game_over"] is True
    assert total > 0
    assert info["episode"].keys() == {"r", "l", "t"}
    assert (info["episode"]["r"], info["episode"]["l"]) == (total, n_steps)
    assert reward == -1


def test_points_are_clipped_and_a_lost_game_costs_one_but_in_pong() -> None:
    without = dataclasses.replace(GAMES["breakout"], end_penalty=False)
    ends = {}
    for game in (GAMES["breakout"], without):
        steps = list(play(AtariEnv(game), 1000))
        ends[game.end_penalty] = {reward for _, reward, _, info in steps if "game_over" in info}
        assert {reward for _, reward, _, info in steps if "game_over" not in info} == {0.0, 1.0}
    assert ends == {True: {-1.0}, False: {0.0}}
    assert [name for name, game in GAMES.items() if not game.end_penalty] == ["pong"]
    invaders = [(r, i) for _, r, _, i in play(make_env("space-invaders"), 500)]
    assert max(reward for reward, _ in invaders) == 1, "an invader gives 5 points or more"


def test_a_game_that_is_cut_off_is_reset_but_not_lost(short: int) -> None:
    ends = [(reward, info) for _, reward, _, info in play(make_env("seaquest"), 2 * short) if "game_over" in info]
    assert [reward for reward, _ in ends] == [0.0, 0.0]
    # no-ops at the start count, but are no steps
    assert all(short - 10 < info["episode"]["l"] <= short for _, info in ends)


def test_the_environment_is_seeded_once_and_games_differ(short: int) -> None:
    env, twin = make_env("pong"), make_env("pong")
    steps = list(play(env, 12 * short))
    for one, two in zip(steps[:150], play(twin, 150), strict=True):
        assert np.array_equal(one[2], two[2])
        assert one[1] == two[1]
    starts = [info["state"].tobytes() for *_, info in steps if "game_over" in info]
    assert len(starts) == 12
    assert len(set(starts)) > 6, "up to 30 no-ops, drawn anew for each game"
    assert not np.array_equal(env.reset(seed=1)[1]["state"], env.reset(seed=2)[1]["state"])


@pytest.mark.parametrize("name", GAMES)
def test_the_score_is_black_for_the_policy_and_seen_by_people(name: str) -> None:
    hidden, shown = make_env(name), make_env(name, kwargs={"hide_score": False}, render_mode="rgb_array")
    both = zip(play(hidden, 60), play(shown, 60), strict=True)
    seen = [(one[2][-1], two[2][-1], shown.render()) for one, two in both]
    masked, open_, pictures = (np.array(images) for images in zip(*seen, strict=True))
    inside = np.zeros((84, 84), bool)
    touched = inside.copy()
    for top, bottom, left, right in GAMES[name].score_boxes:
        y, x = 84 / 210, 84 / 160
        inside[int(np.ceil(top * y)) : int(bottom * y), int(np.ceil(left * x)) : int(right * x)] = True
        touched[int(top * y) : int(np.ceil(bottom * y)), int(left * x) : int(np.ceil(right * x))] = True
    assert inside.any()
    assert not masked[:, inside].any()
    assert np.array_equal(masked[:, ~touched], open_[:, ~touched])
    assert open_[:, inside].any()
    assert pictures.shape == (60, 210, 160, 3)
    assert any(pictures[:, top:bottom, left:right].any() for top, bottom, left, right in GAMES[name].score_boxes)


def test_driving_alongside_has_neither_reward_nor_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(atari.EMULATOR, "max_num_frames_per_episode", 4000)
    assert not has_true_reward(ALONGSIDE)
    steps = list(play(make_env(ALONGSIDE), 1100))
    assert {reward for _, reward, _, _ in steps} == {0.0}
    assert not any("episode" in info for *_, info in steps)
    assert any(info.get("game_over") for *_, info in steps)
    scored = [reward for _, reward, _, _ in play(make_env("enduro"), 1)]
    assert scored == [0.0]


def test_any_other_game_of_the_emulator() -> None:
    env = make_env("ALE/Alien-v5", kwargs={"hide_score": False})
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4, 84, 84)
    assert env_versions("ALE/Pong-v5") == env_versions("pong") == env_versions("prefrl.envs:prefrl/Pong-v0")
    task = find_task("ALE/Alien-v5")
    assert task is not None
    assert (task.horizon, task.segment_steps, task.fps, task.comparisons) == (None, 25, 15, 5500)
    assert find_task("ALE/Pong-v5") is find_task("pong")
    assert find_task("ALE/Pendulum-v5") is not find_task("pendulum"), "no game of the emulator"
    assert all(map(is_game, ("pong", "prefrl/Pong-v0", "prefrl.envs:prefrl/Pong-v0", "ALE/Alien-v5", ALONGSIDE)))
    assert not any(map(is_game, ("pendulum", "prefrl/Pendulum-v0", "Pong")))


def test_the_emulators_settings_are_stored_with_a_run() -> None:
    versions = env_versions("pong", {"size": 42})
    assert versions["observation_space"] == "Box(0, 255, (4, 42, 42), uint8)"
    assert versions["emulator"].startswith("repeat_action_probability 0.0, frame_skip 4, max_num_frames_per_episode 10")
    assert {"ale_py", "opencv"} < versions.keys()


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("pong", {"size": 35}, "pong: size is 35; it must be a whole number of pixels, 36 to 160"),
        ("pong", {"size": 42.0}, "pong: size is 42.0;"),
        ("pong", {"size": True}, "pong: size is True;"),
        ("pong", {"hide_score": 1}, "pong: hide_score is 1; it must be true or false"),
        ("pong", {"frameskip": 4}, r"prefrl/Pong-v0 cannot be made with env.kwargs .*frameskip"),
        ("pong", {"name": "breakout"}, r"cannot be made with env.kwargs .*multiple values"),
        ("ALE/Alien-v5", {}, r"ALE/Alien-v5: .*--env.kwargs '\{hide_score=false\}'"),
        ("ALE/Pogn-v5", {}, r"unknown environment 'ALE/Pogn-v5'; did you mean ALE/Pong-v5\?"),
        ("ALE/Pong-v4", {}, r"unknown environment 'ALE/Pong-v4': did you mean ALE/Pong-v5"),
        ("pogn", {}, "unknown environment 'pogn': did you mean pong"),
    ],
)
def test_what_is_refused_by_name(name: str, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env(name, kwargs=kwargs)


@pytest.mark.parametrize("options", [{"horizon": 1000}, {"ends": "allow"}])
def test_a_game_has_no_horizon(options: dict[str, Any]) -> None:
    with pytest.raises(EnvError, match=r"pong never ends.*leave out env\.horizon and env\.ends"):
        make_env("pong", **options)
    probe_env("pong", ends="reset")  # which is what happens


@pytest.mark.parametrize("module", ["ale_py", "cv2"])
@pytest.mark.parametrize("name", ["pong", "ALE/Alien-v5", ALONGSIDE])
def test_a_missing_extra_is_named(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvError, match=r"need the extra `atari`: pip install 'prefrl\[atari\]'.*" + module) as caught:
        make_env(name)
    assert "\n" not in str(caught.value)


def test_a_state_of_another_game_or_a_damaged_one_is_refused() -> None:
    env, other = AtariEnv(GAMES["pong"]), AtariEnv(GAMES["enduro"])
    env.reset(seed=0)
    other.reset(seed=0)
    state = env.clone_state()
    for wrong in (other.clone_state(), state[:7000], np.zeros(14_000, np.uint8), np.zeros(0, np.uint8)):
        with pytest.raises(EnvError, match=rf"^{len(wrong)} bytes are not a state of pong"):
            env.restore_state(wrong)
    env.restore_state(state)
    assert np.array_equal(env.clone_state(), state)


def test_no_monitor_keeps_the_rewards_of_an_episode_without_an_end(short: int) -> None:
    venv = make_venv(EnvConfig(id="prefrl.envs:prefrl/Pong-v0"), 2, seed=0)
    assert venv.env_is_wrapped(Monitor) == [False, False]
    assert make_venv(EnvConfig(), 1, seed=0).env_is_wrapped(Monitor) == [True]
    venv.reset()
    scores = []
    for _ in range(short + 1):
        _, _, dones, infos = venv.step(np.zeros(2, np.int64))
        assert not dones.any()
        scores += [info["episode"]["r"] for info in infos if "episode" in info]
    assert len(scores) == 2
    assert all(score <= 0 for score in scores)


def test_playing_is_quiet_and_starts_no_threads(capfd: pytest.CaptureFixture[str]) -> None:
    def n_threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    list(play(make_env("pong"), 1))
    before = n_threads()
    for _ in play(make_env("pong", kwargs={"size": 42}), 50):
        pass
    assert n_threads() == before
    assert capfd.readouterr() == ("", "")
