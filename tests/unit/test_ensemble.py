"""The ensemble around the networks: frozen input statistics, normalisation, saving, refusals."""

from __future__ import annotations

import dataclasses
import pickle
import re

import numpy as np
import pytest
import torch
from torch import nn

from prefrl.config import RewardConfig
from prefrl.errors import RewardError
from prefrl.reward_model.ensemble import RewardEnsemble, resolve_device, tensors_from_bytes, tensors_to_bytes
from prefrl.reward_model.spaces import Spaces

BOX = Spaces((3,), (2,))
DISCRETE = Spaces((3,), (), n_actions=4)


def _ensemble(spaces: Spaces = BOX, seed: int = 0, **settings: object) -> RewardEnsemble:
    return RewardEnsemble(spaces, dataclasses.replace(RewardConfig(), **settings), seed)  # type: ignore[arg-type]


def _steps(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Observations whose dimensions differ by orders of magnitude, as raw simulators give them."""
    rng = np.random.default_rng(seed)
    return rng.normal([5.0, -1000.0, 0.0], [1.0, 300.0, 1e-3], (n, 3)), rng.uniform(-1, 1, (n, 2)).astype(np.float32)


def _as_segments(obs: np.ndarray, act: np.ndarray) -> list[torch.Tensor]:
    """Each step as a segment of its own, as features."""
    return [torch.from_numpy(x)[:, None] for x in BOX.features(obs, act)]


def _fitted(**settings: object) -> RewardEnsemble:
    ensemble = _ensemble(**settings)
    ensemble.set_input_statistics(*_steps())
    ensemble.normalise(ensemble.segment_rewards(*_as_segments(*_steps(seed=1))))
    return ensemble


def _statistics(ensemble: RewardEnsemble) -> dict[str, list[float]]:
    return {name: buffer.tolist() for name, buffer in ensemble.named_buffers()}


def test_inputs_are_standardised_with_the_given_statistics() -> None:
    ensemble = _ensemble()
    obs, act = _steps()
    ensemble.set_input_statistics(obs, act)
    for standard in ensemble.inputs(*map(torch.from_numpy, BOX.features(obs, act))):
        torch.testing.assert_close(standard.mean(0), torch.zeros(standard.shape[1]), atol=1e-4, rtol=0)
        torch.testing.assert_close(standard.std(0, correction=0), torch.ones(standard.shape[1]), atol=1e-4, rtol=0)


def test_input_statistics_by_hand() -> None:
    ensemble = _ensemble()
    obs = np.array([[1.0, 10.0, 4.0], [3.0, 30.0, 4.0]])
    ensemble.set_input_statistics(obs, np.array([[0.0, 1.0], [1.0, 1.0]]))
    assert ensemble.obs_mean.tolist() == [2.0, 20.0, 4.0]
    assert ensemble.obs_std.tolist() == [1.0, 10.0, 1.0]  # the third is constant: divided by 1
    assert ensemble.act_mean.tolist() == [0.5, 1.0]
    assert ensemble.act_std.tolist() == [0.5, 1.0]


def test_a_constant_dimension_stays_finite_even_when_it_moves_later() -> None:
    ensemble = _ensemble()
    obs, act = _steps()
    obs[:, 1] = 0.1
    ensemble.set_input_statistics(obs, act)
    obs[:, 1] = 7.1
    standard = ensemble.inputs(*map(torch.from_numpy, BOX.features(obs, act)))[0]
    torch.testing.assert_close(standard[:, 1], torch.full((200,), 7.0))


def test_one_hot_actions_are_left_as_they_are() -> None:
    ensemble = _ensemble(DISCRETE)
    obs, _ = _steps()
    ensemble.set_input_statistics(obs, np.zeros(200, np.int64))
    assert ensemble.act_mean.tolist() == [0.0] * 4
    assert ensemble.act_std.tolist() == [1.0] * 4


def test_inference_and_normalisation_never_change_the_input_statistics() -> None:
    ensemble = _fitted()
    frozen = {k: v for k, v in _statistics(ensemble).items() if k.startswith(("obs", "act"))}
    obs, act = _steps(seed=2)
    ensemble.reward(obs * 50, act)
    ensemble.normalise(ensemble.segment_rewards(*_as_segments(obs * 50, act)))
    assert {k: v for k, v in _statistics(ensemble).items() if k.startswith(("obs", "act"))} == frozen


def test_inference_changes_no_statistics_and_repeats_itself() -> None:
    ensemble = _fitted()
    before = _statistics(ensemble)
    far = (np.full((50, 3), 1e4), np.ones((50, 2)))
    first = ensemble.reward(*_steps(seed=3))
    ensemble.reward(*far)
    ensemble.member_rewards(*far)
    assert _statistics(ensemble) == before
    np.testing.assert_array_equal(ensemble.reward(*_steps(seed=3)), first)


def test_a_step_is_rewarded_the_same_alone_and_in_a_batch() -> None:
    ensemble = _fitted()
    obs, act = _steps(seed=3)
    alone = np.concatenate([ensemble.reward(obs[i : i + 1], act[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(ensemble.reward(obs, act)[:20], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("output_std", [1.0, 0.05])
@pytest.mark.parametrize("n_members", [1, 3])
def test_members_are_normalised_apart_and_their_average_has_the_wanted_std(output_std: float, n_members: int) -> None:
    ensemble = _ensemble(output_std=output_std, n_members=n_members)
    with torch.no_grad():  # members on very different scales
        for m in range(n_members):
            ensemble.net.layers[-1].weight[m] *= 100.0**m
            ensemble.net.layers[-1].bias[m] += 7.0 * m
    ensemble.set_input_statistics(*_steps())
    obs, act = _steps(400, seed=1)
    ensemble.normalise(ensemble.segment_rewards(*_as_segments(obs, act)))
    raw = ensemble.member_rewards(obs, act)
    normal = (raw - ensemble.member_mean[:, None]) / ensemble.member_std[:, None]
    torch.testing.assert_close(normal.mean(1), torch.zeros(n_members), atol=1e-3, rtol=0)
    torch.testing.assert_close(normal.std(1, correction=0), torch.ones(n_members), atol=1e-3, rtol=0)
    reward = ensemble.reward(obs, act)
    assert reward.dtype == np.float32
    assert reward.shape == (400,)
    assert float(reward.mean()) == pytest.approx(0.0, abs=1e-3)
    assert float(reward.std()) == pytest.approx(output_std, rel=1e-3)


class _Constant(nn.Module):
    """Members whose rewards are functions of the first feature, for values by hand."""

    def __init__(self, *slopes: float) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor(slopes)[:, None])

    def forward(self, obs: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        return obs[:, :, 0] * self.slopes


def test_normalisation_by_hand() -> None:
    """Members x and 10 x become the same after normalisation, so that both count alike."""
    ensemble = _ensemble(n_members=2)
    ensemble.net = _Constant(1.0, 10.0)
    obs, act = np.array([[1.0, 0, 0], [3.0, 0, 0]]), np.zeros((2, 2))
    ensemble.normalise(ensemble.segment_rewards(*_as_segments(obs, act)))
    assert ensemble.member_mean.tolist() == [2.0, 20.0]
    assert ensemble.member_std.tolist() == [1.0, 10.0]
    assert ensemble.reward(obs, act).tolist() == [-1.0, 1.0]
    assert ensemble.reward(np.array([[6.0, 0, 0]]), np.zeros((1, 2))).tolist() == [4.0]


@pytest.mark.parametrize("slopes", [(0.0, 0.0), (1.0, -1.0), (0.0, 1.0)])
def test_members_that_cancel_or_are_constant_are_not_blown_up(slopes: tuple[float, float]) -> None:
    ensemble = _ensemble(n_members=2)
    ensemble.net = _Constant(*slopes)
    obs, act = np.array([[1.0, 0, 0], [3.0, 0, 0]]), np.zeros((2, 2))
    ensemble.normalise(ensemble.segment_rewards(*_as_segments(obs, act)))
    assert np.abs(ensemble.reward(np.array([[2.5, 0, 0], [4.0, 0, 0]]), act)).max() < 100


def test_normalising_over_a_single_step_gives_no_huge_rewards() -> None:
    ensemble = _ensemble()
    ensemble.set_input_statistics(*_steps())
    obs, act = _steps(seed=1)
    ensemble.normalise(ensemble.segment_rewards(*_as_segments(obs[:1], act[:1])))
    assert np.abs(ensemble.reward(obs, act)).max() < 1e3


def test_nothing_to_normalise_over_changes_nothing() -> None:
    ensemble = _fitted()
    before = _statistics(ensemble)
    ensemble.normalise(ensemble.segment_rewards(torch.empty(0, 5, 3), torch.empty(0, 5, 2)))
    assert _statistics(ensemble) == before


def test_saving_and_loading_keeps_every_bit_of_the_reward() -> None:
    ensemble, other = _fitted(), _ensemble(seed=99)
    obs, act = _steps(seed=4)
    assert not np.array_equal(other.reward(obs, act), ensemble.reward(obs, act))
    other.load(tensors_from_bytes(tensors_to_bytes(ensemble.to_tensors())))
    np.testing.assert_array_equal(other.reward(obs, act), ensemble.reward(obs, act))
    assert _statistics(other) == _statistics(ensemble)


def test_loading_ignores_other_tensors_and_takes_copies() -> None:
    ensemble, other = _fitted(), _ensemble(seed=99)
    tensors = {**ensemble.to_tensors(), "fitter.l2": torch.ones(3)}
    other.load(tensors)
    before = other.reward(*_steps())
    with torch.no_grad():
        ensemble.net.layers[0].weight.zero_()
    np.testing.assert_array_equal(other.reward(*_steps()), before)


def test_weights_of_other_settings_are_refused_by_name_and_change_nothing() -> None:
    ensemble = _fitted()
    before = ensemble.reward(*_steps())
    with pytest.raises(RewardError, match=r"member_mean is \(5,\), expected \(3,\)"):
        ensemble.load(_fitted(n_members=5).to_tensors())
    missing = {k: v for k, v in _ensemble(seed=9).to_tensors().items() if k != "ensemble.scale"}
    with pytest.raises(RewardError, match=r"scale is missing, expected \(1,\)"):
        ensemble.load(missing)
    with pytest.raises(RewardError, match=r"extra is \(2,\), expected none"):
        ensemble.load({**_ensemble(seed=9).to_tensors(), "ensemble.extra": torch.ones(2)})
    np.testing.assert_array_equal(ensemble.reward(*_steps()), before)


def test_stored_bytes_hold_no_pickle() -> None:
    payload = tensors_to_bytes(_fitted().to_tensors())
    assert payload[8:9] == b"{"  # safetensors: the length of a JSON header, then the header
    assert b'"ensemble.obs_mean"' in payload
    assert not payload.startswith((b"PK", b"\x80"))
    with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError)):
        pickle.loads(payload)


@pytest.mark.parametrize("payload", [b"", b"abc", b"\xff" * 100, pickle.dumps({"a": 1})])
def test_corrupt_bytes_are_refused(payload: bytes) -> None:
    with pytest.raises(RewardError, match="stored weights cannot be read"):
        tensors_from_bytes(payload)


def test_truncated_bytes_are_refused() -> None:
    payload = tensors_to_bytes(_fitted().to_tensors())
    with pytest.raises(RewardError, match="stored weights cannot be read"):
        tensors_from_bytes(payload[:-10])


@pytest.mark.parametrize(
    ("spaces", "obs", "act", "message"),
    [
        (BOX, (5, 4), (5, 2), "takes observations of shape (3,), but was given (4,)"),
        (BOX, (5, 3), (5, 3), "takes actions of shape (2,), but was given (3,)"),
        (BOX, (3,), (5, 2), "takes observations of shape (3,), but was given ()"),
        (BOX, (5, 7, 3), (5, 2), "takes observations of shape (3,), but was given (7, 3)"),
        (DISCRETE, (5, 3), (5, 1), "takes actions of shape (), but was given (1,)"),
        (Spaces((4, 6), (1,)), (5, 6, 4), (5, 1), "takes observations of shape (4, 6), but was given (6, 4)"),
    ],
)
def test_wrong_shapes_are_named(spaces: Spaces, obs: tuple[int, ...], act: tuple[int, ...], message: str) -> None:
    with pytest.raises(RewardError, match=re.escape(message)):
        _ensemble(spaces).reward(np.zeros(obs), np.zeros(act, np.int64))


def test_features_flatten_and_make_discrete_actions_one_hot() -> None:
    spaces = Spaces((2, 2), (), n_actions=3)
    assert (spaces.obs_dim, spaces.act_dim) == (4, 3)
    obs, act = spaces.features(np.arange(8, dtype=np.uint8).reshape(2, 2, 2), np.array([2, 0]))
    assert obs.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert act.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert obs.dtype == act.dtype == np.float32


def test_features_are_copies_of_the_segment_or_leave_it_alone() -> None:
    obs, act = np.ones((2, 3), np.float32), np.ones((2, 2), np.float32)
    ensemble = _ensemble()
    ensemble.set_input_statistics(obs, act)
    ensemble.reward(obs, act)
    assert obs.tolist() == [[1, 1, 1]] * 2
    assert act.tolist() == [[1, 1]] * 2


def test_the_discrete_action_matters_to_the_reward() -> None:
    ensemble = _ensemble(DISCRETE)
    obs = np.zeros((4, 3))
    assert len(set(ensemble.reward(obs, np.arange(4)).tolist())) == 4


def test_spaces_round_trip_through_plain_values() -> None:
    import json

    for spaces in (BOX, DISCRETE):
        assert Spaces.from_dict(json.loads(json.dumps(spaces.to_dict()))) == spaces


def test_cuda_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RewardError, match="set to cuda, but torch finds no CUDA device; use cpu or auto"):
        _ensemble(device="cuda")
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")


def test_auto_takes_cuda_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cpu") == torch.device("cpu")


def test_a_new_ensemble_is_in_eval_mode_so_that_dropout_is_off() -> None:
    ensemble = _ensemble(dropout=0.5)
    assert not ensemble.training
    assert np.array_equal(ensemble.reward(*_steps()), ensemble.reward(*_steps()))


def test_segments_are_rewarded_step_by_step_whatever_their_number() -> None:
    ensemble = _fitted()
    obs, act = _steps(3 * 130, seed=4)
    features = [torch.from_numpy(x).reshape(130, 3, -1) for x in BOX.features(obs, act)]
    rewards = ensemble.segment_rewards(*features)
    assert rewards.shape == (3, 130, 3)
    torch.testing.assert_close(rewards.flatten(1), ensemble.member_rewards(obs, act), rtol=1e-4, atol=1e-4)
