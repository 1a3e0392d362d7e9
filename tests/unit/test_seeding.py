"""Random streams: the same everywhere for the same use, and different for different uses."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.seeding import Stream, rng_for, seed_for

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.sampled_from(Stream), st.integers(0, 2**40))
def test_the_same_use_gives_the_same_numbers(seed: int, stream: Stream, counter: int) -> None:
    first, second = (rng_for(seed, stream, counter).random(4).tolist() for _ in range(2))
    assert first == second
    assert seed_for(seed, stream, counter) == seed_for(seed, stream, counter)


def test_seed_stream_and_counter_each_make_a_difference() -> None:
    uses = list(product(range(4), Stream, range(40)))
    assert len({rng_for(*use).integers(2**62) for use in uses}) == len(uses)


def test_the_arguments_are_not_exchangeable() -> None:
    assert rng_for(1, Stream(2), 3).random() != rng_for(3, Stream(2), 1).random()
    assert rng_for(1, Stream(2), 3).random() != rng_for(2, Stream(1), 3).random()


def test_neighbouring_counters_give_independent_streams() -> None:
    draws = np.stack([rng_for(0, Stream.CANDIDATES, counter).random(2000) for counter in range(10)])
    correlations = np.corrcoef(draws)[~np.eye(10, dtype=bool)]
    assert np.abs(correlations).max() < 5 / np.sqrt(2000)


@given(SEEDS, st.sampled_from(Stream), st.integers(0, 10_000))
def test_integer_seeds_have_31_bits(seed: int, stream: Stream, counter: int) -> None:
    value = seed_for(seed, stream, counter)
    assert type(value) is int
    assert 0 <= value < 2**31


def test_stream_numbers_are_part_of_the_format() -> None:
    """A resumed run draws on: a number may be added, and none may change."""
    known = ["BATCHES", "CANDIDATES", "SEGMENTS", "ORACLE", "SIDES", "POLICY", "EVALUATION"]
    assert {name: Stream[name].value for name in known} == {name: i for i, name in enumerate(known, 1)}
    assert len({s.value for s in Stream}) == len(Stream)


def test_global_generators_are_neither_used_nor_disturbed() -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002 - the global generator is what is looked at
    rng_for(0, Stream.POLICY, 0).random()
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_another_process_gives_the_same(hash_seed: str) -> None:
    code = (
        "from prefrl.seeding import Stream, rng_for, seed_for;"
        "print(rng_for(5, Stream.ORACLE, 9).random(3).tolist(), seed_for(5, Stream.POLICY, 0))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    expected = f"{rng_for(5, Stream.ORACLE, 9).random(3).tolist()} {seed_for(5, Stream.POLICY, 0)}"
    assert out.stdout.strip() == expected
