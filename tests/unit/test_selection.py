"""Which pairs are asked: drawing candidates, and choosing among them."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefrl.config import RewardConfig
from prefrl.errors import ConfigError
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.selection import (
    SELECTORS,
    Selector,
    at_random,
    by_information,
    by_logit,
    by_probability,
    choose,
    draw_candidates,
    information,
)
from prefrl.reward_model.spaces import Spaces

CHI2_14_999 = 36.123  # 99.9 % of chi-square with 14 degrees of freedom
S, T = 25, 6


def _unordered(candidates: np.ndarray) -> list[tuple[int, int]]:
    return [(min(p), max(p)) for p in candidates.tolist()]


@given(st.integers(2, 20), st.integers(1, 60), st.integers(0, 2**32 - 1), st.data())
def test_candidates_are_distinct_pairs_of_different_segments_not_asked_before(
    n_segments: int, n: int, seed: int, data: st.DataObject
) -> None:
    possible = list(combinations(range(n_segments), 2))
    asked = data.draw(st.sets(st.sampled_from(possible)))
    candidates = draw_candidates(n_segments, n, asked, np.random.default_rng(seed))
    pairs = _unordered(candidates)
    assert candidates.shape == (min(n, len(possible) - len(asked)), 2)  # all that there are, or as many as wanted
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) <= set(possible) - asked


@pytest.mark.parametrize("n_segments", [0, 1])
def test_too_few_segments_give_no_pair(n_segments: int) -> None:
    assert draw_candidates(n_segments, 10, set(), np.random.default_rng(0)).shape == (0, 2)


def test_an_exhausted_pool_gives_no_pair() -> None:
    assert draw_candidates(3, 10, {(0, 1), (0, 2), (1, 2)}, np.random.default_rng(0)).shape == (0, 2)


def test_a_pair_asked_is_not_drawn_in_either_order() -> None:
    for seed in range(30):
        assert _unordered(draw_candidates(3, 3, {(0, 2)}, np.random.default_rng(seed))).count((0, 2)) == 0


def _chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def test_every_pair_is_equally_likely() -> None:
    index = {pair: i for i, pair in enumerate(combinations(range(6), 2))}
    counts = np.zeros(15)
    for seed in range(3000):
        for pair in _unordered(draw_candidates(6, 1, set(), np.random.default_rng(seed))):
            counts[index[pair]] += 1
    assert counts.sum() == 3000
    assert _chi_square(counts) < CHI2_14_999


def test_the_first_of_many_candidates_is_equally_likely_too() -> None:
    """At random takes the first ones, so their order must carry nothing."""
    index = {pair: i for i, pair in enumerate(combinations(range(6), 2))}
    counts = np.zeros(15)
    for seed in range(3000):
        first = draw_candidates(6, 10, set(), np.random.default_rng(seed))[:1]
        counts[index[_unordered(first)[0]]] += 1
    assert _chi_square(counts) < CHI2_14_999


def test_which_segment_comes_first_is_a_fair_coin() -> None:
    candidates = draw_candidates(100, 4000, set(), np.random.default_rng(0))
    ordered = int((candidates[:, 0] < candidates[:, 1]).sum())
    assert abs(ordered - 2000) < 4 * math.sqrt(4000) / 2


def test_drawing_is_the_same_for_the_same_generator() -> None:
    first, second, other = (draw_candidates(50, 100, {(1, 2)}, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def _ensemble(n_members: int = 3, seed: int = 0) -> RewardEnsemble:
    ensemble = RewardEnsemble(Spaces((3,), (2,)), RewardConfig(n_members=n_members), seed)
    with torch.no_grad():
        ensemble.net.layers[-1].weight *= 10  # so that differences reach into the logistic's flat part
    return ensemble


def _pool(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(S, T, 3, generator=generator), torch.randn(S, T, 2, generator=generator)


def _scores(ensemble: RewardEnsemble, obs: torch.Tensor, act: torch.Tensor, pairs: np.ndarray, kind: str) -> np.ndarray:
    """Variance over members, pair by pair."""
    scores = []
    for a, b in pairs.tolist():
        returns = [ensemble.member_rewards(obs[s].numpy(), act[s].numpy()).double().sum(1).numpy() for s in (a, b)]
        z = returns[0] - returns[1]
        scores.append(np.var(z if kind == "logit" else 1 / (1 + np.exp(-z))))
    return np.array(scores)


@pytest.mark.parametrize(("selector", "kind"), [(by_probability, "probability"), (by_logit, "logit")])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_pairs_of_highest_variance_are_chosen_best_first(selector: Selector, kind: str, seed: int) -> None:
    ensemble, (obs, act) = _ensemble(seed=seed), _pool(seed)
    candidates = draw_candidates(S, 100, set(), np.random.default_rng(seed))
    chosen = selector(ensemble, obs, act, candidates, 10)
    assert chosen.shape == (10, 2)
    scores = _scores(ensemble, obs, act, candidates, kind)
    best = candidates[np.argsort(-scores, kind="stable")[:10]]
    np.testing.assert_array_equal(chosen, best)


def test_variance_of_probability_and_of_logit_choose_differently() -> None:
    """Negative control: the test above tells the two apart."""
    ensemble, (obs, act) = _ensemble(), _pool()
    candidates = draw_candidates(S, 100, set(), np.random.default_rng(0))
    chosen = [set(_unordered(f(ensemble, obs, act, candidates, 10))) for f in (by_probability, by_logit)]
    assert chosen[0] != chosen[1]


def test_disagreement_sees_standardised_inputs() -> None:
    ensemble, (obs, act) = _ensemble(), _pool()
    obs = obs * torch.tensor([1.0, 50.0, 0.01]) + 3
    ensemble.set_input_statistics(obs.flatten(0, 1).numpy(), act.flatten(0, 1).numpy())
    candidates = draw_candidates(S, 60, set(), np.random.default_rng(0))
    scores = _scores(ensemble, obs, act, candidates, "probability")
    chosen = by_probability(ensemble, obs, act, candidates, 5)
    np.testing.assert_array_equal(chosen, candidates[np.argsort(-scores, kind="stable")[:5]])


def test_scores_are_those_of_the_newest_weights() -> None:
    """Nothing is cached: after a change of the model the same call follows the new model."""
    ensemble, (obs, act) = _ensemble(), _pool()
    candidates = draw_candidates(S, 100, set(), np.random.default_rng(0))
    before = by_probability(ensemble, obs, act, candidates, 10)
    ensemble.load(_ensemble(seed=5).to_tensors())
    after = by_probability(ensemble, obs, act, candidates, 10)
    scores = _scores(ensemble, obs, act, candidates, "probability")
    np.testing.assert_array_equal(after, candidates[np.argsort(-scores, kind="stable")[:10]])
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("selector", [by_probability, by_information])
def test_members_that_agree_leave_the_random_order(selector: Selector) -> None:
    ensemble, (obs, act) = _ensemble(n_members=1), _pool()
    candidates = draw_candidates(S, 30, set(), np.random.default_rng(0))
    np.testing.assert_array_equal(selector(ensemble, obs, act, candidates, 4), candidates[:4])


def _z(*members: list[float]) -> torch.Tensor:
    """Differences (M, C) at which the members predict these probabilities, one list a member, if there is no noise."""
    return torch.tensor(members, dtype=torch.float64).logit()


def _h(p: float) -> float:
    return -p * math.log(p) - (1 - p) * math.log(1 - p)


def test_information_by_hand() -> None:
    sure = torch.tensor([[-1000.0], [1000.0]])  # members at 0 and 1
    assert float(information(sure, 0.0)) == pytest.approx(math.log(2), abs=1e-12)
    assert float(information(sure, 0.1)) == pytest.approx(0.494632, abs=1e-6)  # log 2 - H(0.05)
    two = information(_z([0.9], [0.3]), 0.1)  # with the noise 0.86 and 0.32
    assert float(two) == pytest.approx(_h(0.59) - (_h(0.86) + _h(0.32)) / 2, abs=1e-12)
    three = information(_z([0.5], [0.5], [0.8]), 0.0)
    assert float(three) == pytest.approx(_h(0.6) - (2 * math.log(2) + _h(0.8)) / 3, abs=1e-12)


@pytest.mark.parametrize("p", [0.5, 0.2, 0.999])
def test_members_that_are_unsure_together_tell_nothing(p: float) -> None:
    """The entropy of the answer would be at its highest at 0.5."""
    np.testing.assert_allclose(information(_z([p], [p], [p]), 0.1), 0.0, rtol=0, atol=1e-12)


LOGITS = st.lists(st.floats(-50, 50), min_size=1, max_size=5)


@given(LOGITS, st.floats(0, 0.9), st.floats(0.01, 0.99))
def test_information_has_its_bounds_and_noise_lowers_it(members: list[float], noise: float, more: float) -> None:
    z = torch.tensor(members)[:, None]
    value = float(information(z, noise))
    assert -1e-12 <= value <= math.log(min(2, len(members))) + 1e-12
    noisier = noise + (0.99 - noise) * more
    assert float(information(z, noisier)) <= value + 1e-12
    assert float(information(-z, noise)) == pytest.approx(value, abs=1e-12), "(a, b) and (b, a) are one question"
    assert float(information(z.flip(0), noise)) == pytest.approx(value, abs=1e-12)


def test_information_ranks_otherwise_than_variance() -> None:
    """One member sure and one not tell more than two that are both unsure, though these are further apart."""
    z = _z([0.3, 1e-9], [0.7, 0.38])
    variance = torch.sigmoid(z).var(0, correction=0)  # 0.04 and 0.0361
    assert variance[0] > variance[1]
    for noise in (0.0, 0.1):
        told = information(z, noise)
        assert told[1] > 1.4 * told[0]
    np.testing.assert_allclose(information(z, 0.0), [0.0823, 0.1542], rtol=0, atol=1e-4)


def test_the_most_informative_pairs_are_chosen_best_first_for_the_noise_of_the_ensemble() -> None:
    (obs, act), chosen = _pool(), {}
    candidates = draw_candidates(S, 100, set(), np.random.default_rng(0))
    for noise in (0.0, 0.6):
        ensemble = _ensemble()
        ensemble.noise = noise
        scores = []
        for a, b in candidates.tolist():
            returns = [ensemble.member_rewards(obs[s].numpy(), act[s].numpy()).double().sum(1).numpy() for s in (a, b)]
            p = (1 - noise) / (1 + np.exp(returns[1] - returns[0])) + noise / 2
            scores.append(_h(p.mean()) - np.mean([_h(one) for one in p]))
        chosen[noise] = by_information(ensemble, obs, act, candidates, 10)
        best = candidates[np.argsort(-np.array(scores), kind="stable")[:10]]
        np.testing.assert_array_equal(chosen[noise], best)
    assert chosen[0.0].tolist() != chosen[0.6].tolist()
    assert RewardEnsemble(Spaces((3,), (2,)), RewardConfig(noise=0.3), 0).noise == 0.3


@pytest.mark.parametrize("selector", [by_probability, by_information, by_logit, at_random])
def test_fewer_candidates_than_wanted_are_all_chosen(selector: Selector) -> None:
    ensemble, (obs, act) = _ensemble(), _pool()
    candidates = np.array([[0, 1], [2, 3]])
    chosen = selector(ensemble, obs, act, candidates, 10)
    assert sorted(chosen.tolist()) == candidates.tolist()


def test_at_random_takes_the_first_and_does_not_look_at_the_model() -> None:
    candidates = draw_candidates(S, 30, set(), np.random.default_rng(0))
    obs, act = _pool()
    for seed in (0, 1):
        np.testing.assert_array_equal(at_random(_ensemble(seed=seed), obs, act, candidates, 7), candidates[:7])


def test_choosing_leaves_the_ensemble_and_the_random_numbers_alone() -> None:
    ensemble, (obs, act) = _ensemble(), _pool()
    before = {k: v.clone() for k, v in ensemble.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    by_probability(ensemble, obs, act, np.array([[0, 1], [2, 3]]), 1)
    assert torch.equal(torch.rand(2), expected)
    assert all(torch.equal(v, before[k]) for k, v in ensemble.state_dict().items())


def test_names() -> None:
    assert {"disagreement": by_probability, "information": by_information, "random": at_random} == SELECTORS


@pytest.mark.parametrize(
    ("select", "complaint"),
    [
        (lambda e, o, a, c, n: c[: n + 1], "must return at most n .*n is 2 here"),
        (lambda e, o, a, c, n: c[[0, 0]], "one twice"),
        (lambda e, o, a, c, n: c[:n, ::-1], "none of them"),
        (lambda e, o, a, c, n: c[:n, 0], "failed: TypeError"),
        (lambda e, o, a, c, n: 1 / 0, "failed: ZeroDivisionError"),
    ],
)
def test_a_selector_that_breaks_its_contract_while_the_run_goes_on_is_named(select: Selector, complaint: str) -> None:
    nothing = torch.zeros(0)
    candidates = np.array([[0, 1], [3, 2], [1, 4]])
    with pytest.raises(ConfigError, match=f"query.selector 'mine:s' .*{complaint}"):
        choose("mine:s", select, None, nothing, nothing, candidates, 2)  # type: ignore[arg-type]
    assert choose("mine:s", lambda *_: candidates[1:], None, nothing, nothing, candidates, 2) == [(3, 2), (1, 4)]  # type: ignore[arg-type]
    assert choose("mine:s", lambda *_: candidates[:0], None, nothing, nothing, candidates, 2) == []  # type: ignore[arg-type]
