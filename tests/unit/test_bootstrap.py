"""Bootstrap weights: stable, apart, and distributed as drawing with replacement."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.reward_model.bootstrap import bootstrap_weights

MASK = 2**64 - 1
CHI2_5_999 = 20.515  # 99.9 % of chi-square with 5 degrees of freedom


def _seqs(n: int, first: int = 1) -> np.ndarray:
    return np.arange(first, first + n, dtype=np.int64)


def _splitmix(x: int) -> int:
    z = (x + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def _naive(seed: int, member: int, seq: int) -> int:
    """One weight with Python's integers: the number of Poisson(1) steps below a uniform."""
    uniform = (_splitmix(_splitmix(_splitmix(seed) ^ member) ^ _splitmix(seq)) >> 11) / 2**53
    k, below = 0, math.exp(-1)
    while uniform >= below:
        k += 1
        below += math.exp(-1) / math.factorial(k)
    return k


def test_splitmix_reference() -> None:
    """The first outputs of SplitMix64 from state 0, as published with the generator."""
    assert _splitmix(0) == 0xE220A8397B1DCDAF
    assert _splitmix(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 2**40), min_size=1, max_size=20))
def test_equals_a_loop_over_python_integers(seed: int, seqs: list[int]) -> None:
    weights = bootstrap_weights(seed, 3, np.array(seqs, np.int64))
    assert weights.tolist() == [[_naive(seed, m, s) for s in seqs] for m in range(3)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(0, 60), st.integers(0, 60))
def test_appending_comparisons_changes_no_weight(seed: int, n_members: int, n: int, more: int) -> None:
    before = bootstrap_weights(seed, n_members, _seqs(n))
    after = bootstrap_weights(seed, n_members, _seqs(n + more))
    assert before.shape == (n_members, n)
    np.testing.assert_array_equal(after[:, :n], before)


@given(st.integers(0, 2**32 - 1), st.sets(st.integers(0, 99)))
def test_withdrawing_comparisons_changes_no_other_weight(seed: int, gone: set[int]) -> None:
    kept = np.array([i for i in range(100) if i not in gone], np.int64)
    np.testing.assert_array_equal(
        bootstrap_weights(seed, 3, _seqs(100)[kept]), bootstrap_weights(seed, 3, _seqs(100))[:, kept]
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_a_members_weights_do_not_depend_on_the_ensembles_size(seed: int, n_members: int) -> None:
    np.testing.assert_array_equal(
        bootstrap_weights(seed, n_members, _seqs(50)), bootstrap_weights(seed, 12, _seqs(50))[:n_members]
    )


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_members_draw_independently(seed: int) -> None:
    """Members see different data, and as different as independent draws are."""
    n = 20_000
    weights = bootstrap_weights(seed, 5, _seqs(n)).astype(float)
    for a, b in itertools.combinations(weights, 2):
        assert (a != b).any()
        assert abs(float(np.corrcoef(a, b)[0, 1])) < 4 / math.sqrt(n)


def test_neighbouring_seeds_draw_independently() -> None:
    n = 20_000
    a, b = (bootstrap_weights(seed, 1, _seqs(n))[0].astype(float) for seed in (7, 8))
    assert abs(float(np.corrcoef(a, b)[0, 1])) < 4 / math.sqrt(n)


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_the_held_out_share_is_one_over_e_and_the_mean_is_one(seed: int) -> None:
    n = 30_000
    p = math.exp(-1)
    for row in bootstrap_weights(seed, 3, _seqs(n)):
        assert abs((row == 0).mean() - p) < 3 * math.sqrt(p * (1 - p) / n)
        assert abs(row.mean() - 1) < 3 / math.sqrt(n)  # Poisson(1) has variance 1


@pytest.mark.parametrize("seed", [0, 3, 99])
def test_weights_are_poisson_of_mean_one(seed: int) -> None:
    n = 30_000
    p = [math.exp(-1) / math.factorial(k) for k in range(5)]
    expected = n * np.array([*p, 1 - sum(p)])
    for row in bootstrap_weights(seed, 3, _seqs(n)):
        observed = np.bincount(np.minimum(row, 5), minlength=6)
        assert float(((observed - expected) ** 2 / expected).sum()) < CHI2_5_999


def test_the_chi_square_test_can_fail() -> None:
    """Negative control: counts of mean 1 that are not Poisson are told apart."""
    n = 30_000
    p = [math.exp(-1) / math.factorial(k) for k in range(5)]
    expected = n * np.array([*p, 1 - sum(p)])
    binomial = np.random.default_rng(0).binomial(4, 0.25, n)
    observed = np.bincount(np.minimum(binomial, 5), minlength=6)
    assert float(((observed - expected) ** 2 / expected).sum()) > CHI2_5_999


def test_each_multiset_is_about_as_large_as_the_data_with_63_percent_distinct() -> None:
    n = 300
    weights = bootstrap_weights(0, 3, _seqs(n))
    bags = [np.repeat(_seqs(n), row) for row in weights]
    for bag in bags:
        assert abs(len(bag) - n) < 4 * math.sqrt(n)
        assert len(np.unique(bag)) / n == pytest.approx(1 - math.exp(-1), abs=4 * math.sqrt(0.2325 / n))
    assert len({tuple(bag.tolist()) for bag in bags}) == 3


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_draws_the_same(hash_seed: str) -> None:
    code = (
        "import numpy as np; from prefrl.reward_model.bootstrap import bootstrap_weights as w;"
        "print(w(17, 3, np.arange(1, 41)).tolist())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(bootstrap_weights(17, 3, np.arange(1, 41)).tolist())
