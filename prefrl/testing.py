"""Checkers for people who write plug-ins: each raises PrefrlError with every reason it found.

``check_env`` is in ``prefrl.envs.check`` and is repeated here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch

from prefrl.config import PolicyConfig, RewardConfig
from prefrl.envs.check import check_env
from prefrl.errors import PrefrlError
from prefrl.oracle.teachers import Judged, ReturnStatistics, Teacher
from prefrl.resolve import resolve_policy
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.nets import RewardNet
from prefrl.reward_model.selection import Selector, draw_candidates
from prefrl.reward_model.spaces import Spaces
from prefrl.types import Preference

__all__ = ["check_env", "check_learner", "check_net", "check_oracle", "check_selector"]


def check_oracle(
    make: Callable[..., Teacher], obs_shape: tuple[int, ...] = (3,), act_shape: tuple[int, ...] = (1,)
) -> None:
    """Check an oracle: it answers with a Preference, equally for equal random streams, and leaves its input alone."""
    teacher, faults = make(), []
    statistics = ReturnStatistics(spread=1.0, recent_mean=0.0)
    rng = np.random.default_rng(0)
    for _ in range(100):
        left, right = (
            Judged(*(rng.normal(size=(10, *shape)) for shape in ((), obs_shape, act_shape))) for _ in range(2)
        )
        before = copy.deepcopy((left, right))
        seed = int(rng.integers(2**31))
        answers = [teacher(left, right, statistics, np.random.default_rng(seed)) for _ in range(2)]
        if not all(isinstance(a, Preference) and a is not Preference.WITHDRAWN for a in answers):
            faults.append(f"answered {answers[0]!r}, not left, right, tie or incomparable of prefrl.types.Preference")
        if answers[0] != answers[1]:
            faults.append("answered differently for the same pair and random stream: draw from the rng it is given")
        if not all(_equal(*pair) for pair in zip(before, (left, right), strict=True)):
            faults.append("changed the segments it was given")
    _refuse("oracle", faults)


def check_selector(select: Selector) -> None:
    """Check a selector: at most n rows of the candidates, none twice, the same when called again."""
    spaces, faults = Spaces((3,), (2,)), []
    ensemble = RewardEnsemble(spaces, RewardConfig(), seed=0)
    rng = np.random.default_rng(0)
    obs, act = (torch.from_numpy(rng.normal(size=(20, 5, n)).astype(np.float32)) for n in (3, 2))
    candidates = draw_candidates(20, 50, set(), rng)
    known = {tuple(row) for row in candidates.tolist()}
    for n in (1, 5, 80):
        chosen, again = (
            [tuple(row) for row in np.asarray(select(ensemble, obs, act, candidates, n)).tolist()] for _ in range(2)
        )
        if not 0 < len(chosen) <= n:
            faults.append(f"returned {len(chosen)} pairs when {n} were asked for")
        if len(set(chosen)) < len(chosen) or not set(chosen) <= known:
            faults.append("returned a pair twice, or one that was not among the candidates")
        if chosen != again:
            faults.append("chose differently when called again with the same arguments")
    _refuse("selector", faults)


def check_net(make: RewardNet, image: tuple[int, int, int] | None = None) -> None:
    """Check a reward net: shape (M, N), finite, trainable, and members that do not touch each other.

    Args:
        make: Makes the net.
        image: Shape (K, H, W) of the images that it is for; by default it is for vectors.
    """
    faults = []
    act_dim = 0 if image else 2
    net = make(3, image or 4, act_dim, seed=0, dropout=0.0)
    obs, act = torch.randn(3, 7, *(image or (4,))), torch.randn(3, 7, act_dim)
    rewards = net(obs, act)
    if rewards.shape != (3, 7):
        faults.append(f"maps {tuple(obs.shape)}, {tuple(act.shape)} to {tuple(rewards.shape)}, not to (3, 7)")
    elif not torch.isfinite(rewards).all():
        faults.append("gave values that are not finite")
    else:
        other = obs.clone()
        other[1] += 1.0
        if not torch.equal(net(other, act)[[0, 2]], rewards[[0, 2]]):
            faults.append("the input of one member changes the reward of another")
        if torch.equal(rewards[0], net(obs[[1, 0, 2]], act[[1, 0, 2]])[1]):
            faults.append("all members start with the same weights")
        rewards.sum().backward()
        if not any(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters()):
            faults.append("no parameter gets a gradient")
    _refuse("net", faults)


def check_learner(name: str) -> None:
    """Check a learner by its name or ``module:Class``: it is built and learns two rollouts of a pendulum."""
    from prefrl.config import EnvConfig
    from prefrl.rollout.learners import make_learner
    from prefrl.rollout.role import make_venv

    config = resolve_policy(PolicyConfig(learner=name, n_envs=2, n_steps=32))
    venv = make_venv(EnvConfig(id="pendulum", horizon=16), 2, seed=0)
    try:
        learner = make_learner(config, venv, seed=0)
        learner.learn(128)
        faults = [] if learner.num_timesteps == 128 else [f"counted {learner.num_timesteps} steps instead of 128"]
        if not all(torch.isfinite(p).all() for p in learner.policy.parameters()):
            faults.append("has parameters that are not finite after two rollouts")
    finally:
        venv.close()
    _refuse("learner", faults)


def _equal(a: Judged, b: Judged) -> bool:
    return all(np.array_equal(value, vars(b)[name]) for name, value in vars(a).items())


def _refuse(kind: str, faults: list[str]) -> None:
    if faults:
        raise PrefrlError(f"this {kind} cannot be used: " + "; ".join(dict.fromkeys(faults)))
