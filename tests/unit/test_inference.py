"""The reward between two steps of a simulator is the ensemble's own, to rounding."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefrl.config import RewardConfig
from prefrl.errors import RewardError
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.inference import stepwise
from prefrl.reward_model.nets import BatchedLinear
from prefrl.reward_model.spaces import Spaces


def _fitted(spaces: Spaces, n_members: int, rng: np.random.Generator) -> RewardEnsemble:
    """An ensemble whose inputs are far from standard, and whose members have each their own normalisation."""
    ensemble = RewardEnsemble(spaces, RewardConfig(n_members=n_members, output_std=0.3), seed=3)
    steps = _steps(spaces, 300, rng)
    ensemble.set_input_statistics(*steps)
    ensemble.normalise(ensemble.segment_rewards(*(torch.from_numpy(x)[:, None] for x in spaces.features(*steps))))
    return ensemble


def _steps(spaces: Spaces, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    obs = 50 + rng.normal(size=(n, *spaces.obs_shape)) * np.array([1e-3, 1.0, 100.0])
    if spaces.n_actions:
        return obs, rng.integers(0, spaces.n_actions, n)
    return obs, rng.normal(size=(n, *spaces.act_shape)).astype(np.float32)


@given(st.booleans(), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
def test_it_is_the_ensembles_own(discrete: bool, n_members: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spaces = Spaces((3,), (), n_actions=4) if discrete else Spaces((3,), (2,))
    ensemble = _fitted(spaces, n_members, rng)
    obs, act = _steps(spaces, n, rng)
    reward = stepwise(ensemble)(obs, act)
    assert reward.shape == (n,)
    assert reward.dtype == np.float32
    np.testing.assert_allclose(reward, ensemble.reward(obs, act), atol=2e-5)


def test_it_keeps_the_weights_of_its_making() -> None:
    rng = np.random.default_rng(0)
    ensemble = _fitted(Spaces((3,), (2,)), 3, rng)
    obs, act = _steps(ensemble.spaces, 5, rng)
    reward, before = stepwise(ensemble), ensemble.reward(obs, act)
    ensemble.load(_fitted(ensemble.spaces, 3, rng).to_tensors())
    ensemble.scale.fill_(9.0)
    np.testing.assert_allclose(reward(obs, act), before, atol=2e-5)
    assert not np.allclose(ensemble.reward(obs, act), before, atol=0.1), "else nothing was kept"


def test_a_net_of_another_kind_is_called_as_it_is() -> None:
    config = dataclasses.replace(RewardConfig(), net="tests.unit.test_inference:linear")
    ensemble = RewardEnsemble(Spaces((3,), (2,)), config, seed=0)
    assert stepwise(ensemble) == ensemble.reward


def linear(n_members: int, obs_dim: int, act_dim: int, *, seed: int, dropout: float):  # type: ignore[no-untyped-def]
    """A net plug-in."""
    from prefrl.reward_model.nets import MLPEnsemble

    class Other(MLPEnsemble):
        pass

    return Other(n_members, obs_dim, act_dim, seed=seed, dropout=dropout)


def test_lists_will_do_and_nothing_gives_nothing() -> None:
    reward = stepwise(_fitted(Spaces((3,), (2,)), 3, np.random.default_rng(0)))
    one = reward(np.ones((2, 3)), np.zeros((2, 2)))
    np.testing.assert_array_equal(reward([[1.0] * 3] * 2, [[0.0] * 2] * 2), one)  # type: ignore[arg-type]
    assert reward(np.empty((0, 3)), np.empty((0, 2))).shape == (0,)
    with pytest.raises(RewardError, match="one action for each observation, but there are 3 for 2"):
        reward(np.zeros((2, 3)), np.zeros((3, 2)))


@pytest.mark.parametrize("obs", [np.zeros((2, 4)), np.zeros((2, 3, 1))])
def test_wrong_shapes_are_named(obs: np.ndarray) -> None:
    reward = stepwise(_fitted(Spaces((3,), (2,)), 3, np.random.default_rng(0)))
    with pytest.raises(RewardError, match="takes observations of shape"):
        reward(obs, np.zeros((2, 2)))


def test_a_net_of_the_same_kind_with_more_layers_is_called_as_it_is() -> None:
    ensemble = _fitted(Spaces((3,), (2,)), 2, np.random.default_rng(0))
    ensemble.net.layers.insert(1, BatchedLinear(64, 64, [torch.Generator().manual_seed(m) for m in range(2)]))
    obs, act = _steps(ensemble.spaces, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(stepwise(ensemble)(obs, act), ensemble.reward(obs, act))
