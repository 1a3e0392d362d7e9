"""Fitting: it learns, it learns nothing from noise, members stay apart, a resumed fit goes on bit for bit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from prefrl.config import RewardConfig
from prefrl.errors import RewardError
from prefrl.reward_model.bootstrap import bootstrap_weights
from prefrl.reward_model.calibration import agreed, agreed_from_metrics, agreed_to_metrics, calibrate, from_metrics
from prefrl.reward_model.dataset import PreferenceDataset
from prefrl.reward_model.ensemble import RewardEnsemble, tensors_from_bytes, tensors_to_bytes
from prefrl.reward_model.fitting import L2_EVERY, L2_FACTOR, L2_MAX, L2_MIN, Fitter
from prefrl.reward_model.loss import preference_loss
from prefrl.reward_model.spaces import Spaces
from prefrl.types import TOLD, Comparison, Preference, Segment

STEPS = 5
SPACES = Spaces((3,), (1,))
WEIGHTS = np.array([1.0, -2.0, 0.5, 1.5], np.float32)  # the true reward is linear


def _config(**settings: object) -> RewardConfig:
    return dataclasses.replace(RewardConfig(batch_size=32), **settings)  # type: ignore[arg-type]


def _segments(n: int, seed: int = 0) -> list[Segment]:
    rng = np.random.default_rng(seed)
    obs, act = rng.normal(size=(n, STEPS, 3)), rng.normal(size=(n, STEPS, 1))
    return [Segment(o.astype(np.float32), a.astype(np.float32)) for o, a in zip(obs, act, strict=True)]


def _true_return(segment: Segment) -> float:
    return float((np.concatenate([segment.obs, segment.act], 1) @ WEIGHTS).sum())


def _row(seq: int, first: int, second: int, answer: Preference) -> Comparison:
    return Comparison(seq, first, second, answer, answer.mu(1), 1, "me", str(seq))


def _data(n: int, seed: int = 0, n_ties: int = 0) -> PreferenceDataset:
    """``n`` noiseless answers, then ties between random segments."""
    segments = dict(enumerate(_segments(200, seed)))
    rng = np.random.default_rng(seed)
    rows = []
    for seq in range(1, n + n_ties + 1):
        a, b = rng.choice(200, 2, replace=False).tolist()
        better = Preference.LEFT if _true_return(segments[a]) > _true_return(segments[b]) else Preference.RIGHT
        rows.append(_row(seq, a, b, better if seq <= n else Preference.TIE))
    data = PreferenceDataset(SPACES, STEPS)
    data.extend(rows, segments)
    return data


def _fitter(seed: int = 0, **settings: object) -> Fitter:
    config = _config(**settings)
    return Fitter(RewardEnsemble(SPACES, config, seed), config, seed)


def _member(fitter: Fitter, m: int) -> torch.Tensor:
    return torch.cat([p[m].detach().flatten() for p in fitter.parameters])


def _same(fitter: Fitter, other: Fitter) -> bool:
    return all(torch.equal(p, q) for p, q in zip(fitter.parameters, other.parameters, strict=True))


class _Linear(torch.nn.Module):
    """A known reward model: every member is the true reward, times a factor."""

    def __init__(self, n_members: int, factor: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(WEIGHTS * factor).expand(n_members, -1).clone())

    def forward(self, obs: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        return (torch.cat([obs, act], -1) * self.weight[:, None]).sum(-1)


def _known(factor: float = 1.0) -> Fitter:
    config = _config()
    ensemble = RewardEnsemble(SPACES, config, 0)
    ensemble.net = _Linear(3, factor)
    return Fitter(ensemble, config, 0)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_linear_reward_is_learned_from_300_answers(seed: int) -> None:
    data, fitter = _data(300, seed), _fitter(seed)
    report = fitter.fit(data, 200)
    assert report.oob_accuracy > 0.9
    assert report.train_loss < report.oob_loss < math.log(2)
    fresh = _segments(200, seed + 50)
    learned = fitter.ensemble.member_rewards(
        np.concatenate([s.obs for s in fresh]), np.concatenate([s.act for s in fresh])
    )
    true = np.concatenate([np.concatenate([s.obs, s.act], 1) @ WEIGHTS for s in fresh])
    for member in learned.numpy():
        assert np.corrcoef(member, true)[0, 1] > 0.9


@pytest.mark.parametrize("seed", [0, 1])
def test_nothing_is_learned_from_shuffled_answers(seed: int) -> None:
    """Negative control of the test above."""
    data = _data(300, seed)
    data.mu = np.random.default_rng(seed).permutation(data.mu)
    report = _fitter(seed).fit(data, 200)
    assert report.oob_accuracy == pytest.approx(0.5, abs=0.12)
    assert report.oob_loss > math.log(2)


def _telling(n: int, seed: int = 0) -> tuple[PreferenceDataset, list[Segment]]:
    """Comparisons whose oracle tells both true returns, and whose answers are all left."""
    segments, rng = _segments(200, seed), np.random.default_rng(seed)
    rows = []
    for seq in range(1, n + 1):
        a, b = rng.choice(200, 2, replace=False).tolist()
        told = [_true_return(segments[a]), _true_return(segments[b])]
        rows.append(dataclasses.replace(_row(seq, a, b, Preference.LEFT), detail={TOLD: told}))
    data = PreferenceDataset(SPACES, STEPS)
    data.extend(rows, dict(enumerate(segments)))
    return data, segments


def _correlation(fitter: Fitter, seed: int) -> float:
    fresh = _segments(200, seed + 50)
    learned = fitter.ensemble.member_rewards(
        np.concatenate([s.obs for s in fresh]), np.concatenate([s.act for s in fresh])
    )
    true = np.concatenate([np.concatenate([s.obs, s.act], 1) @ WEIGHTS for s in fresh])
    return min(float(np.corrcoef(member, true)[0, 1]) for member in learned.numpy())


@pytest.mark.parametrize("seed", [0, 1])
def test_true_returns_are_fitted_where_they_are_the_objective_and_only_there(seed: int) -> None:
    """All answers say left: whoever learns from them learns little of the reward."""
    data, _ = _telling(300, seed)
    told, answers = _fitter(seed, objective="target"), _fitter(seed)
    told.fit(data, 200)
    answers.fit(data, 200)
    assert _correlation(told, seed) > 0.9
    assert _correlation(answers, seed) < 0.5
    data.returns = np.random.default_rng(seed).permutation(data.returns.ravel()).reshape(-1, 2)
    shuffled = _fitter(seed, objective="target")
    shuffled.fit(data, 200)
    assert _correlation(shuffled, seed) < 0.5


def test_the_loss_of_a_target_is_the_squared_distance_on_the_returns_own_scale() -> None:
    data, _ = _telling(40)
    fitter = _fitter(objective="target", n_members=1)
    report = fitter.report(data)
    scaled = (data.returns - data.returns.mean()) / data.returns.std()
    sums = fitter.ensemble.segment_rewards(data.obs, data.act).sum(-1)[0].numpy()
    losses = ((sums[data.pairs] - scaled) ** 2).mean(1)
    weights = bootstrap_weights(0, 1, data.bags)[0]
    assert report.train_loss == pytest.approx(np.average(losses, weights=weights), rel=1e-4)
    assert report.oob_loss == pytest.approx(losses[weights == 0].mean(), rel=1e-4)


def test_a_comparison_that_tells_no_return_is_no_target() -> None:
    with pytest.raises(RewardError, match=r"comparison 1 tells no true returns.*reward.objective target"):
        _fitter(objective="target").fit(_data(3), 1)


def test_before_fitting_the_accuracy_is_chance_and_the_loss_that_of_a_coin() -> None:
    report = _fitter().report(_data(300))
    assert report.oob_accuracy == pytest.approx(0.5, abs=0.2)
    assert report.train_loss == pytest.approx(math.log(2), abs=0.2)


def test_ties_are_no_mistakes_but_are_in_the_loss() -> None:
    data, fitter = _data(100, n_ties=300), _known()
    report = fitter.report(data)
    assert report.oob_accuracy == 1.0
    assert (report.n_decided, report.n_ties) == (100, 300)
    assert math.isfinite(report.train_loss)
    assert math.isfinite(report.oob_loss)
    assert report.train_loss > 3 * fitter.report(_data(100)).train_loss  # a known model is sure, and ties cost it


def test_a_model_that_is_always_wrong_has_accuracy_zero() -> None:
    assert _known(-1.0).report(_data(100, n_ties=50)).oob_accuracy == 0.0


def test_ties_alone_pull_returns_together() -> None:
    data, fitter = _data(0, n_ties=200), _fitter()
    before = float(fitter.logits(data).abs().mean())
    report = fitter.fit(data, 100)
    assert math.isnan(report.oob_accuracy)
    assert report.n_decided == 0
    assert float(fitter.logits(data).abs().mean()) < 0.5 * before


def test_losses_are_the_bootstrap_weighted_and_the_out_of_bag_mean() -> None:
    """Against a plain loop."""
    data, fitter = _data(40), _fitter()
    report = fitter.report(data)
    z = fitter.logits(data).double()
    train, held_out = [], []
    for m, weights in enumerate(bootstrap_weights(0, 3, data.bags)):
        losses = [float(preference_loss(z[m, i], torch.tensor(float(data.mu[i])), 0.1)) for i in range(40)]
        train.append(np.average(losses, weights=weights))
        held_out.append(np.mean([x for x, w in zip(losses, weights, strict=True) if w == 0]))
    assert report.train_loss == pytest.approx(np.mean(train), rel=1e-5)
    assert report.oob_loss == pytest.approx(np.mean(held_out), rel=1e-5)


def test_logits_against_a_loop_over_segments() -> None:
    data, fitter = _data(10), _fitter()
    z = fitter.logits(data)
    assert z.shape == (3, 10)
    for i, (a, b) in enumerate(data.pairs):
        sums = [fitter.ensemble.member_rewards(data.obs[s].numpy(), data.act[s].numpy()).sum(1) for s in (a, b)]
        torch.testing.assert_close(z[:, i], sums[0] - sums[1], rtol=1e-4, atol=1e-5)
    sums = fitter.ensemble.segment_rewards(data.obs, data.act).sum(-1)
    assert sums.shape == (3, len(data.obs))


def test_inputs_are_standardised_while_fitting_too() -> None:
    """The same segments in other units, with statistics to match, give the same fit."""
    data, scaled = _data(60), _data(60)
    scaled.obs = data.obs * torch.tensor([1.0, 1e4, 1e-3]) + 5
    fitter, other = _fitter(), _fitter()
    for f, d in ((fitter, data), (other, scaled)):
        f.ensemble.set_input_statistics(d.obs.flatten(0, 1).numpy(), d.act.flatten(0, 1).numpy())
    first, second = fitter.fit(data, 30), other.fit(scaled, 30)
    assert second.train_loss == pytest.approx(first.train_loss, rel=1e-3)


def _change(n_members: int, sgd: bool, data: PreferenceDataset, n_steps: int) -> torch.Tensor:
    fitter = _fitter(n_members=n_members)
    fitter.ensemble.double()  # Adam's first step is the gradient's sign, which rounding may turn
    if sgd:
        fitter.optimizer = torch.optim.SGD(fitter.parameters, lr=0.05)  # type: ignore[assignment]  # no rescaling
    before = _member(fitter, 0)
    fitter.fit(data, n_steps)
    return _member(fitter, 0) - before


@pytest.mark.parametrize("n_members", [3, 10])
@pytest.mark.parametrize("sgd", [True, False])
def test_a_members_fit_does_not_depend_on_the_number_of_members(n_members: int, sgd: bool) -> None:
    data = _data(100)
    alone = _change(1, sgd, data, 1)
    assert float((_change(n_members, sgd, data, 1) - alone).norm() / alone.norm()) < 1e-5


def test_members_see_different_data_and_come_to_differ() -> None:
    data, fitter = _data(300), _fitter()
    bags = fitter._batches(bootstrap_weights(0, 3, data.bags), 200)
    seen = [set(bags[:, m].flatten().tolist()) for m in range(3)]
    for m, ids in enumerate(seen):
        assert ids == set(np.flatnonzero(bootstrap_weights(0, 3, data.bags)[m]).tolist())
    assert len({frozenset(ids) for ids in seen}) == 3
    fitter.fit(data, 50)
    z = fitter.logits(data)
    assert float(z.std(0).mean()) > 0.05 * float(z.std())


def test_an_epoch_shows_each_comparison_as_often_as_its_weight() -> None:
    data = _data(60)
    fitter = _fitter(batch_size=7)
    weights = bootstrap_weights(0, 3, data.bags)
    batches = fitter._batches(weights, 40)
    assert batches.shape == (40, 3, 7)
    for m, counts in enumerate(weights):
        stream = batches[:, m].flatten()
        epoch = int(counts.sum())
        for start in range(0, len(stream) - epoch + 1, epoch):
            np.testing.assert_array_equal(np.bincount(stream[start : start + epoch], minlength=60), counts)
        assert not np.array_equal(stream[:epoch], stream[epoch : 2 * epoch])  # shuffled anew


def test_each_fit_shuffles_anew() -> None:
    data, fitter = _data(60), _fitter()
    weights = bootstrap_weights(0, 3, data.bags)
    first = fitter._batches(weights, 5)
    np.testing.assert_array_equal(fitter._batches(weights, 5), first)
    fitter.fit(data, 5)
    assert not np.array_equal(fitter._batches(weights, 5), first)


def test_held_out_answers_never_influence_their_member() -> None:
    """Turning the answers that member 1 never sees changes the other members, and not a bit of member 1."""
    data, turned = _data(80), _data(80)
    held_out = bootstrap_weights(0, 3, data.bags)[1] == 0
    assert 15 < held_out.sum() < 45
    turned.mu = np.where(held_out, 1 - data.mu, data.mu).astype(np.float32)
    fitter, other = _fitter(l2_initial=0.0), _fitter(l2_initial=0.0)
    fitter.fit(data, 60)
    other.fit(turned, 60)
    assert torch.equal(_member(fitter, 1), _member(other, 1))
    assert not torch.equal(_member(fitter, 0), _member(other, 0))
    assert not torch.equal(_member(fitter, 2), _member(other, 2))


def test_held_out_answers_act_through_the_l2_rule_alone() -> None:
    """The complement: with L2 on, the same change is felt, but only after the first look at it."""
    data, turned = _data(80), _data(80)
    held_out = bootstrap_weights(0, 3, data.bags)[1] == 0
    turned.mu = np.where(held_out, 1 - data.mu, data.mu).astype(np.float32)
    for n_steps, same in ((L2_EVERY, True), (4 * L2_EVERY, False)):
        fitter, other = _fitter(l2_initial=0.01), _fitter(l2_initial=0.01)
        fitter.fit(data, n_steps)
        other.fit(turned, n_steps)
        assert torch.equal(_member(fitter, 1), _member(other, 1)) is same


def test_the_l2_rule_moves_each_member_towards_the_interval() -> None:
    fitter = _fitter(l2_initial=0.01, n_members=6)
    ratios = [1.0, 1.09, 1.2, 1.49, 1.51, 3.0]
    fitter._adapt_l2(torch.full((6,), 0.4), 0.4 * torch.tensor(ratios))
    up, down = 0.01 * L2_FACTOR, 0.01 / L2_FACTOR
    assert fitter.l2.tolist() == pytest.approx([down, down, 0.01, 0.01, up, up])


def test_the_l2_rule_stays_put_without_data_and_within_its_limits() -> None:
    fitter = _fitter(l2_initial=0.01)
    fitter._adapt_l2(torch.tensor([0.4, math.nan, 0.4]), torch.tensor([math.nan, 0.4, 0.5]))
    assert fitter.l2.tolist() == pytest.approx([0.01] * 3)
    for _ in range(400):
        fitter._adapt_l2(torch.tensor([1.0, 1.0, 1.0]), torch.tensor([9.0, 0.1, 1.3]))
    assert fitter.l2.tolist() == pytest.approx([L2_MAX, L2_MIN, 0.01])


def test_overfitting_raises_l2_and_l2_shrinks_the_weights() -> None:
    data = _data(40)
    data.mu = np.random.default_rng(0).permutation(data.mu)
    adaptive, off = _fitter(l2_initial=1e-3, learning_rate=3e-3), _fitter(l2_initial=0.0, learning_rate=3e-3)
    grown, none = adaptive.fit(data, 200), off.fit(data, 200)
    assert grown.l2 > 1e-3
    assert none.l2 == 0.0
    norms = [sum(float(p.detach().square().sum()) for p in f.parameters if p.shape[1] > 1) for f in (adaptive, off)]
    assert norms[0] < norms[1]


def test_l2_zero_switches_the_rule_off(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(Fitter, "_adapt_l2", lambda self, train, oob: calls.append(1))
    _fitter(l2_initial=0.0).fit(_data(20), 2 * L2_EVERY)
    assert calls == []
    _fitter(l2_initial=0.1).fit(_data(20), 2 * L2_EVERY)
    assert calls == [1, 1]


def test_weights_are_penalised_and_biases_are_not() -> None:
    fitter = _fitter()
    assert [tuple(p.shape) for p in fitter.penalised] == [(3, 4, 64), (3, 64, 64), (3, 64, 1)]


def _saved(fitter: Fitter) -> bytes:
    return tensors_to_bytes(fitter.ensemble.to_tensors() | fitter.to_tensors())


def _restored(payload: bytes, **settings: object) -> Fitter:
    fitter = _fitter(**settings)
    tensors = tensors_from_bytes(payload)
    fitter.ensemble.load(tensors)
    fitter.load(tensors)
    return fitter


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_resumed_fit_goes_on_bit_for_bit(dropout: float) -> None:
    data = _data(80)
    through = _fitter(dropout=dropout)
    through.fit(data, 40)
    payload = _saved(through)
    resumed = _restored(payload, dropout=dropout)
    torch.manual_seed(1)
    first = through.fit(data, 40)
    torch.manual_seed(2)  # what else a process draws does not matter
    second = resumed.fit(data, 40)
    assert _same(through, resumed)
    assert first == second
    assert torch.equal(through.l2, resumed.l2)
    assert _saved(through) == _saved(resumed)
    assert resumed.n_steps == 80


def test_resuming_without_the_optimiser_would_differ() -> None:
    """Negative control: the weights alone are not enough."""
    data, through = _data(80), _fitter()
    through.fit(data, 40)
    cold = _fitter()
    cold.ensemble.load(tensors_from_bytes(_saved(through)))
    through.fit(data, 40)
    cold.fit(data, 40)
    assert not _same(through, cold)


def test_a_fitter_that_never_stepped_can_be_saved_and_resumed() -> None:
    data, fitter = _data(30), _fitter()
    resumed = _restored(_saved(fitter))
    fitter.fit(data, 10)
    resumed.fit(data, 10)
    assert _same(fitter, resumed)


def test_data_read_in_parts_and_at_once_give_the_same_weights() -> None:
    """A resumed process reads all comparisons at once, in another order of segments."""
    segments = dict(enumerate(_segments(200)))
    at_once, parts = _data(80), PreferenceDataset(SPACES, STEPS)
    parts.extend(at_once.rows[:37], segments)
    parts.extend(at_once.rows[37:], segments)
    assert not torch.equal(parts.obs, at_once.obs)
    fitter, other = _fitter(), _fitter()
    fitter.fit(at_once, 60)
    other.fit(parts, 60)
    assert _same(fitter, other)


def test_equal_seeds_fit_equally_and_others_do_not() -> None:
    data = _data(60)
    fitters = [_fitter(seed) for seed in (3, 3, 4)]
    for fitter in fitters:
        fitter.fit(data, 20)
    assert _same(fitters[0], fitters[1])
    assert not _same(fitters[0], fitters[2])


def test_weights_that_are_not_finite_are_refused_and_taken_back() -> None:
    data, fitter = _data(40), _fitter(learning_rate=1e30)
    before = [p.detach().clone() for p in fitter.parameters]
    with pytest.raises(RewardError, match=r"not finite; lower reward\.learning_rate"):
        fitter.fit(data, 5)
    assert all(torch.equal(p, q) for p, q in zip(fitter.parameters, before, strict=True))
    assert not fitter.ensemble.training


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_one_and_two_comparisons_are_enough_to_fit(n: int, seed: int) -> None:
    """Whatever the bootstrap's luck: an empty bag, or nothing held out."""
    fitter = _fitter(seed)
    data = _data(n, seed)
    report = fitter.fit(data, 60)
    assert all(torch.isfinite(p).all() for p in fitter.parameters)
    assert report.n_decided == n
    loss = preference_loss(fitter.logits(data), torch.from_numpy(data.mu), 0.1).numpy()
    weights = bootstrap_weights(seed, 3, data.bags)
    weights[weights.sum(1) == 0] = 1  # an empty bag is replaced by all comparisons
    assert loss[weights > 0].max() < 0.3


def test_both_kinds_of_luck_are_among_those_seeds() -> None:
    one = np.array([1], np.int64)
    weights = np.stack([bootstrap_weights(seed, 3, one) for seed in range(6)])[:, :, 0]  # (seeds, M)
    assert (weights == 0).any()  # an empty bag
    assert (weights > 0).all(1).any()  # nothing held out at all


def test_nothing_held_out_gives_nan_and_no_step_of_the_rule() -> None:
    seed = next(s for s in range(50) if (bootstrap_weights(s, 3, np.array([1], np.int64)) > 0).all())
    fitter = _fitter(seed)
    report = fitter.fit(_data(1, seed), 2 * L2_EVERY)
    assert math.isnan(report.oob_loss)
    assert math.isnan(report.oob_accuracy)
    assert math.isfinite(report.train_loss)
    assert fitter.l2.tolist() == pytest.approx([1e-2] * 3)


def test_no_comparison_left_changes_nothing() -> None:
    """The only answer was withdrawn after a first fit."""
    data, fitter = _data(1), _fitter()
    fitter.fit(data, 10)
    before = [p.detach().clone() for p in fitter.parameters]
    data.extend([Comparison(2, 0, 1, Preference.WITHDRAWN, None, 1, "me", "u", supersedes=1)], {})
    assert len(data) == 0
    report = fitter.fit(data, 10)
    assert all(torch.equal(p, q) for p, q in zip(fitter.parameters, before, strict=True))
    assert (report.n_decided, report.n_ties) == (0, 0)
    assert math.isnan(report.train_loss)


def test_the_global_random_numbers_are_not_disturbed() -> None:
    data, fitter = _data(30), _fitter(dropout=0.5)
    torch.manual_seed(9)
    expected = torch.rand(4)
    torch.manual_seed(9)
    np_state = np.random.get_state()[1].tolist()  # noqa: NPY002 - the global generator is what is looked at
    fitter.fit(data, 10)
    fitter.report(data)
    assert torch.equal(torch.rand(4), expected)
    assert np.random.get_state()[1].tolist() == np_state  # noqa: NPY002


def test_dropout_acts_while_fitting_only(monkeypatch: pytest.MonkeyPatch) -> None:
    data = _data(60)
    modes: list[bool] = []
    original = torch.nn.functional.dropout

    def spy(x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
        modes.append(training)
        return original(x, p, training)

    monkeypatch.setattr(torch.nn.functional, "dropout", spy)
    fitter = _fitter(dropout=0.5)
    fitter.fit(data, 10)
    assert modes.count(True) == 10 * 2  # two hidden layers a step; not while losses are looked at
    modes.clear()
    assert torch.equal(fitter.logits(data), fitter.logits(data))
    fitter.report(data)
    obs, act = data.obs[0].numpy(), data.act[0].numpy()
    assert np.array_equal(fitter.ensemble.reward(obs, act), fitter.ensemble.reward(obs, act))
    assert not any(modes)
    assert not fitter.ensemble.training


def test_dropout_changes_the_fit() -> None:
    data = _data(60)
    plain, dropped = _fitter(), _fitter(dropout=0.5)
    plain.fit(data, 10)
    dropped.fit(data, 10)
    assert not _same(plain, dropped)


def test_both_segments_of_a_pair_go_through_one_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """A net with batch statistics would otherwise see the two in different units."""
    data, fitter = _data(40), _fitter(batch_size=16)
    shapes: list[Sequence[int]] = []
    original = type(fitter.ensemble.net).forward

    def spy(self: torch.nn.Module, obs: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        if self.training:
            shapes.append(tuple(obs.shape))
        return original(self, obs, act)

    monkeypatch.setattr(type(fitter.ensemble.net), "forward", spy)
    fitter.fit(data, 3)
    assert shapes == [(3, 16 * 2 * STEPS, 3)] * 3


def test_fitting_leaves_input_statistics_alone_and_normalises_over_the_segments_compared() -> None:
    data, fitter = _data(40), _fitter()
    fitter.ensemble.set_input_statistics(data.obs.flatten(0, 1).numpy(), data.act.flatten(0, 1).numpy())
    before = {name: b.clone() for name, b in fitter.ensemble.named_buffers() if name.startswith(("obs", "act"))}
    fitter.fit(data, 10)
    now = dict(fitter.ensemble.named_buffers())
    assert all(torch.equal(now[name], b) for name, b in before.items())
    learned = fitter.ensemble.reward(data.obs.flatten(0, 1).numpy(), data.act.flatten(0, 1).numpy())
    assert (learned.mean(), learned.std()) == pytest.approx((0.0, 1.0), abs=1e-4)


@pytest.mark.parametrize("n_ties", [0, 30])
def test_calibration_is_of_members_not_fitted_to_the_answer(n_ties: int) -> None:
    data, fitter = _data(60, n_ties=n_ties), _fitter()
    report = fitter.fit(data, 20)
    weights, z = bootstrap_weights(0, 3, data.bags), fitter.logits(data).numpy()
    predicted, first = [], []
    for b in range(60):  # ties come after, and are in no bin
        ps = [0.9 / (1 + math.exp(-z[m, b])) + 0.05 for m in range(3) if weights[m, b] == 0]
        if ps:
            predicted.append(sum(ps) / len(ps))
            first.append(data.mu[b] == 1)
    expected = calibrate(np.array(predicted), np.array(first))
    assert 0 < expected.n < 60
    assert report.calibration.error == pytest.approx(expected.error, abs=1e-6)
    assert [(b.place, b.n, b.n_first) for b in report.calibration.bins] == [
        (b.place, b.n, b.n_first) for b in expected.bins
    ]


def test_metrics_are_flat_and_hold_the_calibration() -> None:
    report = _known(0.3).report(_data(100))
    metrics = report.metrics()
    assert all(type(value) is float for value in metrics.values())
    assert metrics["oob_accuracy"] == report.oob_accuracy
    restored = from_metrics(metrics)
    assert [(b.place, b.n, b.n_first) for b in restored.bins] == [
        (b.place, b.n, b.n_first) for b in report.calibration.bins
    ]
    assert restored.error == pytest.approx(metrics["oob_ece"])
    assert from_metrics({"oob_loss": 0.5}).bins == ()
    empty = _fitter().report(_data(0, n_ties=20)).metrics()
    assert math.isnan(empty["oob_ece"])
    assert not any(name.startswith("oob_bin_") for name in empty)


def test_agreement_with_each_annotator_by_hand() -> None:
    predicted, first = np.array([0.9, 0.2, 0.7, 0.5, 0.6]), np.array([True, True, True, True, False])
    found = agreed(predicted, first, ["ann", "ann", "bob: the 2nd", "bob: the 2nd", "ann"])
    assert found == {"ann": (1, 3), "bob: the 2nd": (1, 1)}
    assert agreed_from_metrics({"oob_loss": 0.5} | agreed_to_metrics(found)) == found
    assert agreed(predicted, first, list("abcab"), most=1) == {"b": (0, 2)}
    assert agreed(np.empty(0), np.empty(0, np.bool_), []) == {}


def test_a_report_tells_careful_and_careless_annotators_apart() -> None:
    data, fitter = _data(200), _known()
    data.annotators = ["ann"] * 100 + ["bob"] * 100
    data.mu[100:] = 1 - data.mu[100:]  # bob turns everything round
    found = fitter.report(data).agreed
    assert set(found) == {"ann", "bob"}
    assert found["ann"][0] == found["ann"][1] > 50
    assert found["bob"][0] == 0 < found["bob"][1]
