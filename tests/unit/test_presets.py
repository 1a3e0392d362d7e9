from __future__ import annotations

import pytest

from prefrl.errors import ConfigError
from prefrl.games import ALONGSIDE
from prefrl.presets import beneath, merged
from prefrl.resolve import resolve
from prefrl.settings import from_dict, from_given, to_dict


def test_a_game_brings_the_papers_settings_and_what_is_given_wins() -> None:
    config = from_given({"env": {"id": "pong"}, "reward": {"output_std": 1.0}})
    assert (config.policy.learner, config.policy.n_envs, config.label.budget) == ("a2c", 16, None)
    assert [resolve(from_given({"env": {"id": name}})).label.budget for name in ("pong", ALONGSIDE)] == [5500, 1300]
    assert config.reward.output_std == 1.0
    assert config.reward.dropout == 0.5
    assert from_dict({"env": {"id": "pong"}}).policy.learner == "trpo"  # what is stored is taken as it is


def test_the_laptop_preset_keeps_what_is_asked_of_the_environment() -> None:
    config = from_given({"env": {"id": "ALE/Alien-v5", "kwargs": {"hide_score": False}}, "preset": "laptop"})
    assert config.env.kwargs == {"size": 42, "hide_score": False}
    assert config.reward.net == "cnn-small"
    assert from_dict(to_dict(config)) == config


def test_other_tasks_have_no_presets() -> None:
    assert beneath("hopper", "") == {}
    with pytest.raises(ConfigError, match=r"preset laptop is for Atari games, but env\.id is hopper"):
        from_given({"env": {"id": "hopper"}, "preset": "laptop"})
    with pytest.raises(ConfigError, match="preset is 'labtop'; it must be one of laptop; did you mean"):
        from_given({"env": {"id": "pong"}, "preset": "labtop"})


def test_merging_leaves_the_layers_alone() -> None:
    low, high = {"a": {"b": {"c": 1}}, "d": 2}, {"a": {"b": {"e": 3}}, "d": {"f": 4}}
    assert merged(low, high) == {"a": {"b": {"c": 1, "e": 3}}, "d": {"f": 4}}
    assert low == {"a": {"b": {"c": 1}}, "d": 2}
