"""Batches that are not alike: distances by hand, successive elimination, near-duplicates in a pool."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefrl.config import RewardConfig
from prefrl.resolve import resolve
from prefrl.reward_model.batches import WIDER, eliminate, pair_distances, summaries, unlike
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.role import RewardRole
from prefrl.reward_model.selection import Selector, by_information, by_logit, by_probability
from prefrl.reward_model.spaces import Spaces
from prefrl.settings import from_dict, to_dict
from prefrl.store.engine import Database
from prefrl.store.runs import create_run
from prefrl.store.segments import add_segments
from prefrl.types import Segment

T = 6


def _ensemble(seed: int = 0) -> RewardEnsemble:
    return RewardEnsemble(Spaces((3,), (2,)), RewardConfig(), seed)


def _twice(n: int, jitter: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Segments i and n + i are alike to ``jitter``."""
    generator = torch.Generator().manual_seed(seed)
    one = torch.randn(n, T, 5, generator=generator)
    both = torch.cat([one, one + jitter * torch.randn(n, T, 5, generator=generator)])
    return both[..., :3], both[..., 3:]


def _line(*points: float) -> np.ndarray:
    return np.abs(np.subtract.outer(points, points))


# what is left out


def test_the_worse_of_the_two_nearest_is_left_out_again_and_again() -> None:
    distance = _line(0.0, 10.0, 10.5, 1.0, 20.0)  # best first
    assert eliminate(distance, 4) == [0, 1, 3, 4]  # 10.5 is 0.5 from 10
    assert eliminate(distance, 3) == [0, 1, 4]  # 1 is 1 from 0
    assert eliminate(distance, 2) == [0, 1]  # 0, 10, 20: the last of those that are equally near
    assert eliminate(distance, 1) == [0]


def _naive(distance: np.ndarray, n: int) -> list[int]:
    kept = list(range(len(distance)))
    while len(kept) > n:
        pairs = [(distance[i, j], -j) for i in kept for j in kept if i < j]
        kept.remove(-min(pairs)[1])
    return kept


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12), st.integers(1, 14))
def test_elimination_is_the_naive_loop_and_keeps_the_best(points: list[tuple[int, int]], n: int) -> None:
    x = np.array(points, float)
    distance = np.abs(x[:, None] - x[None]).sum(-1)
    kept = eliminate(distance, n)
    assert kept == _naive(distance, n)
    assert kept[0] == 0
    assert len(kept) == min(n, len(points))


# how far two pairs are


def test_pairs_are_as_far_as_their_segments_matched_to_be_nearest() -> None:
    segments = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0], [3.0, 5.0]], dtype=torch.float64)
    pairs = np.array([[0, 1], [3, 2], [1, 0], [0, 2]])
    expected = [
        [0, 2, 0, math.sqrt(20)],  # (0,1)-(3,2): 0 to 2 and 1 to 3; (0,1)-(0,2): 1 to 2
        [2, 0, 2, math.sqrt(34)],  # (3,2)-(0,2): 3 to 0
        [0, 2, 0, math.sqrt(20)],
        [math.sqrt(20), math.sqrt(34), math.sqrt(20), 0],
    ]
    np.testing.assert_allclose(pair_distances(segments, pairs), expected, rtol=0, atol=1e-12)


def test_the_same_difference_elsewhere_is_another_question() -> None:
    segments = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    assert pair_distances(segments, np.array([[0, 1], [2, 3]]))[0, 1] == 20.0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=8), st.integers(0, 1000))
def test_it_is_a_metric_of_unordered_pairs(pairs: list[tuple[int, int]], seed: int) -> None:
    segments = torch.randn(10, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    d = pair_distances(segments, np.array(pairs))
    np.testing.assert_array_equal(d, d.T)
    assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-12).all(), "triangle"
    same = np.array([[sorted(p) == sorted(q) for q in pairs] for p in pairs])
    np.testing.assert_array_equal(d == 0, same)
    turned = pair_distances(segments, np.array([(b, a) for a, b in pairs]))
    np.testing.assert_allclose(turned, d, rtol=0, atol=1e-12)


def test_a_tiny_distance_far_from_the_origin_is_kept() -> None:
    """Of thirty and more rows torch would by default take the distance from products, which loses it."""
    segments = 1000 + 1e-6 * torch.arange(40, dtype=torch.float32).double()[:, None]
    distance = pair_distances(segments, np.column_stack([np.arange(40), np.arange(40)]))
    np.testing.assert_allclose(distance[0], 2e-6 * np.arange(40), rtol=1e-6)


def test_a_segment_is_told_by_mean_and_spread_of_its_standardised_steps_in_any_order() -> None:
    ensemble = _ensemble()
    ensemble.obs_mean.copy_(torch.tensor([1.0, 0.0, 0.0]))
    ensemble.obs_std.copy_(torch.tensor([2.0, 1.0, 1.0]))
    ensemble.act_std.copy_(torch.tensor([1.0, 4.0]))
    obs = torch.tensor([[[3.0, 0.0, 5.0], [7.0, 2.0, 5.0]]])
    act = torch.tensor([[[0.0, 4.0], [0.0, -4.0]]])
    expected = torch.tensor([[2.0, 1.0, 5.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(summaries(ensemble, obs, act), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(summaries(ensemble, obs.flip(1), act.flip(1)), expected, rtol=0, atol=1e-12)


# batches


@pytest.mark.parametrize("select", [by_probability, by_logit, by_information])
@pytest.mark.parametrize("seed", [0, 1])
def test_of_pairs_that_are_there_twice_each_is_asked_once(select: Selector, seed: int) -> None:
    n_segments, n = 12, 8
    ensemble, (obs, act) = _ensemble(seed), _twice(n_segments, 1e-4, seed)
    one = np.array([(a, b) for a in range(n_segments) for b in range(a)])
    candidates = np.concatenate([one, n_segments + one[:, ::-1]])

    def n_questions(pairs: list[tuple[int, int]]) -> int:
        return len({(min(a % n_segments, b % n_segments), max(a % n_segments, b % n_segments)) for a, b in pairs})

    best = [(a, b) for a, b in select(ensemble, obs, act, candidates, WIDER * n).tolist()]
    chosen = unlike(ensemble, obs, act, best, n)
    assert n_questions(best[:n]) == n / 2, "control: the best alone are the same questions twice"
    assert n_questions(chosen) == n
    assert chosen[0] == best[0]
    assert [best.index(pair) for pair in chosen] == sorted(best.index(pair) for pair in chosen), "best first"
    assert unlike(ensemble, obs, act, best, n) == chosen


def test_where_all_are_the_same_the_best_are_asked() -> None:
    obs, act = torch.ones(6, T, 3), torch.ones(6, T, 2)
    best = [(0, 1), (3, 2), (4, 5), (2, 1), (0, 5)]
    assert unlike(_ensemble(), obs, act, best, 2) == best[:2]


@pytest.mark.parametrize("n", [3, 10])
def test_fewer_than_wanted_are_all_asked(n: int) -> None:
    obs, act = _twice(3, 0.0)
    best = [(0, 3), (3, 0), (1, 2)]
    assert unlike(_ensemble(), obs, act, best, n) == best
    assert unlike(_ensemble(), obs, act, [], n) == []


def test_choosing_leaves_the_ensemble_and_the_random_numbers_alone() -> None:
    ensemble, (obs, act) = _ensemble(), _twice(3, 0.1)
    before = {k: v.clone() for k, v in ensemble.state_dict().items()}
    state = torch.get_rng_state()
    unlike(ensemble, obs, act, [(0, 1), (3, 4), (2, 5)], 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in ensemble.state_dict().items())


# the role


def _asked(folder: Path, **query: object) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What a role chooses among all pairs of 12 segments that are there twice: before its first version, and after."""
    config = resolve(from_dict({"env": {"segment_steps": T}, "query": {"candidate_factor": 100, **query}}))
    with Database.create(f"sqlite:///{folder}/batches.db") as db:
        run = create_run(db, "r", to_dict(config), {"spaces": Spaces((3,), (2,)).to_dict()})
        obs, act = (x.numpy() for x in _twice(12, 1e-4))
        add_segments(db, run.id, [Segment(o, a, source="initial") for o, a in zip(obs, act, strict=True)], None)
        role = RewardRole(db, run)
        first = role._choose(8, 0)
        role.version = 1
        return first, [((a - 1) % 12, (b - 1) % 12) for a, b in role._choose(4, 0)]


@pytest.mark.parametrize("selector", ["disagreement", "information"])
def test_the_role_asks_diverse_batches_where_told_to_and_random_ones_at_first(tmp_path: Path, selector: str) -> None:
    asked = {}
    for batch in ("top", "diverse"):
        (tmp_path / batch).mkdir()
        asked[batch] = _asked(tmp_path / batch, selector=selector, batch=batch)
    assert asked["top"][0] == asked["diverse"][0]
    questions = {batch: {tuple(sorted(pair)) for pair in pairs} for batch, (_, pairs) in asked.items()}
    assert len(questions["top"]) == 1, "each pair is there four times"
    assert len(questions["diverse"]) == 2, "eight pairs are two questions"
    assert questions["top"] < questions["diverse"]
