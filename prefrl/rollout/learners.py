"""The learners: stable-baselines3's algorithms by name, with settings for preference runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from stable_baselines3 import A2C, PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from prefrl.config import PolicyConfig
from prefrl.errors import ConfigError, describe
from prefrl.registry import find
from prefrl.rollout.trpo import EntropyTRPO

Learner = Callable[..., OnPolicyAlgorithm]

LEARNERS: dict[str, Learner] = {"trpo": EntropyTRPO, "a2c": A2C, "ppo": PPO}

# Unstated in the paper unless said: gamma and lambda of TRPO are its own (appendix A.1); epsilon inside the
# root for RMSprop is what its A2C code base had (epsilon outside collapses under changing rewards).
DEFAULTS: dict[str, dict[str, Any]] = {
    "trpo": {
        "gamma": 0.995,
        "gae_lambda": 0.97,
        "learning_rate": 1e-3,
        "batch_size": 64,
        "n_critic_updates": 10,
        "target_kl": 0.02,
    },
    "a2c": {
        "gamma": 0.99,
        "learning_rate": 7e-4,
        "ent_coef": 0.01,
        "policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}},
        "use_rms_prop": False,
    },
    "ppo": {"batch_size": 64, "gamma": 0.99, "gae_lambda": 0.95, "ent_coef": 0.0},
}


def make_normaliser(venv: VecEnv, config: PolicyConfig, *, training: bool = True) -> VecNormalize:
    """The wrapper between reward and learner: standardised observations, and rewards of a scale critics can follow.

    Without the latter a critic starts a hundred units away from returns of rewards of unit variance, and TRPO's
    few regression steps between two rollouts take half of a short run to get there.

    Raises:
        ConfigError: Images are to be standardised.
    """
    if config.normalize_obs and is_image_space(venv.observation_space):
        raise ConfigError(
            "policy.normalize_obs is on, but the observations are images, which the policy divides by 255: turn it off"
        )
    gamma = {**DEFAULTS.get(config.learner, {}), **config.kwargs}.get("gamma", 0.99)
    return VecNormalize(
        venv, norm_obs=config.normalize_obs, norm_reward=config.normalize_reward, gamma=gamma, training=training
    )


def make_learner(config: PolicyConfig, venv: VecEnv, seed: int) -> OnPolicyAlgorithm:
    """Build the learner over ``venv``.

    Raises:
        ConfigError: Unknown learner, not an on-policy stable-baselines3 class, or settings it refuses.
    """
    make = find("learner", config.learner, LEARNERS)
    defaults = DEFAULTS.get(config.learner, {})
    kwargs = {**defaults, "n_steps": config.n_steps, **config.kwargs}
    images = is_image_space(venv.observation_space)
    policy = kwargs.pop("policy", "CnnPolicy" if images else "MlpPolicy")
    try:
        if config.decay_steps:
            kwargs["learning_rate"] = _falling(_learning_rate(make, kwargs), config)
        if "policy_kwargs" in defaults:  # a net of another size keeps the optimiser
            kwargs["policy_kwargs"] = defaults["policy_kwargs"] | kwargs["policy_kwargs"]
        learner = make(policy, venv, seed=seed, device=config.device, **kwargs)
    except Exception as error:  # whatever its constructor does
        raise ConfigError(f"policy.kwargs do not fit the learner {config.learner!r}: {describe(error)}") from error
    if not isinstance(learner, OnPolicyAlgorithm):
        raise ConfigError(
            f"policy.learner {config.learner!r} makes {type(learner).__name__}, which is not an on-policy "
            "stable-baselines3 algorithm; a replay buffer would keep rewards of old versions"
        )
    return learner


def _learning_rate(make: Learner, kwargs: dict[str, Any]) -> float:
    """The learning rate that is asked for, or else the learner's own."""
    usual = inspect.signature(make).parameters.get("learning_rate")
    rate = kwargs.get("learning_rate", usual.default if usual else None)
    if not isinstance(rate, int | float):
        raise ValueError(f"policy.decay_steps needs a learning_rate that is a number, but it is {rate!r}")
    return float(rate)


def _falling(rate: float, config: PolicyConfig) -> Callable[[float], float]:
    """A learning rate that falls to 0 in a straight line over ``decay_steps``, whatever the length of the run.

    stable-baselines3 asks with the share of the run that is left.
    """
    steps, decay = config.steps, config.decay_steps
    return lambda left: rate * max(0.0, 1 - (1 - left) * steps / decay)
