"""What a task, and a preset, set beneath the settings that a person gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from prefrl.errors import ConfigError
from prefrl.games import is_game

Nested = dict[str, Any]

# Paper, appendix A.2. Unstated there: batch size and step size of the reward model, the size of the pool, how often
# rewards are exchanged. It fits "typically 1 label per 10 RL timesteps": 4 minibatches of 32 in 1,280 steps.
_ATARI: Nested = {
    "policy": {
        "learner": "a2c",
        "steps": 50_000_000,
        "n_envs": 16,
        "sync_every": 1280,
        "decay_steps": 80_000_000,
        "checkpoint_every": 100_000,
        "normalize_obs": False,
        "normalize_reward": False,  # rewards of standard deviation 0.05, so that A2C's settings fit as they are
    },
    "reward": {
        "net": "cnn",
        "output_std": 0.05,
        "dropout": 0.5,
        "window": 3000,
        "batch_size": 32,
        "pretrain_steps": 3125,  # 200 epochs of the 500 initial comparisons
        "fit_steps": 4,
    },
    "query": {"pool": 1000, "segments_per_rollout": 16},
    "label": {"initial_fraction": 500 / 5500, "schedule": "staircase"},
}

# A quarter of the pixels, a smaller reward net and a sixth of the steps, for a machine without a GPU.
_LAPTOP: Nested = {
    "env": {"kwargs": {"size": 42}},
    "policy": {"steps": 8_000_000},
    "reward": {"net": "cnn-small"},
}


def beneath(env_id: str, preset: str) -> Nested:
    """Settings of a task and a preset, over the defaults and under what a person gives.

    Raises:
        ConfigError: The preset is not for this task.
    """
    if not is_game(env_id):
        if preset:
            raise ConfigError(f"preset {preset} is for Atari games, but env.id is {env_id}; leave it out")
        return {}
    return merged(_ATARI, _LAPTOP) if preset == "laptop" else _ATARI


def merged(*layers: Mapping[str, Any]) -> Nested:
    """Nested settings laid over each other, the later ones on top; what is no table replaces what was there."""
    result: Nested = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            both = isinstance(below, dict) and isinstance(value, dict)
            result[key] = merged(cast(Nested, below), value) if both else value
    return result
