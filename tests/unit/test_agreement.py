"""Agreement, bias and pace of annotators: published examples, numbers by hand, and what must hold always."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.config import FEWEST_HELD_OUT
from prefrl.report import agreement, tempo
from prefrl.report.agreement import Share, among_all, between, category, cohen, every_two, fleiss
from prefrl.report.watch import Trend, Verdict, trend, watch
from prefrl.reward_model.held_out import Look, evidence
from prefrl.types import Comparison, Preference

LEFT, RIGHT, TIE, NONE = Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE
ANSWERS = (LEFT, RIGHT, TIE, NONE)
# ten subjects, fourteen raters, five categories: kappa .210 (en.wikipedia.org/wiki/Fleiss%27_kappa, worked example)
SUBJECTS = np.array(
    [
        *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
        *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
    ]
)


def row(
    seq: int,
    preference: Preference,
    who: str = "ann",
    pair: tuple[int, int] = (1, 2),
    left: int = 1,
    **more: object,
) -> Comparison:
    values: dict[str, object] = {"query_id": seq, **more}
    one = Comparison(seq, *pair, preference, preference.mu(left), left, who, f"uuid-{seq}")
    return dataclasses.replace(one, **values)  # type: ignore[arg-type]  # passed on


def by(who: str, answers: list[Preference], start: int = 1) -> list[Comparison]:
    """One answer to each of the pairs (0, 100), (1, 101), …"""
    return [row(start + i, said, who, (i, i + 100)) for i, said in enumerate(answers)]


def test_cohen_of_fifty_proposals() -> None:
    # both yes 20, only A yes 5, only B yes 10, both no 15: p_o .7, p_e .5 (en.wikipedia.org/wiki/Cohen%27s_kappa)
    a, b = "y" * 25 + "n" * 25, "y" * 20 + "n" * 5 + "y" * 10 + "n" * 15
    assert cohen(a, b) == pytest.approx(0.4)


def test_cohen_of_the_two_examples_with_equal_agreement() -> None:
    # the same page: 60 of 100 agree both times, but chance explains more of it in the first table
    assert cohen("y" * 60 + "n" * 40, "y" * 45 + "n" * 15 + "y" * 25 + "n" * 15) == pytest.approx(0.1304, abs=5e-5)
    assert cohen("y" * 60 + "n" * 40, "y" * 25 + "n" * 35 + "y" * 5 + "n" * 35) == pytest.approx(0.2593, abs=5e-5)


def test_fleiss_of_ten_subjects() -> None:
    assert fleiss(SUBJECTS) == pytest.approx(0.20993, abs=5e-6)
    alone = np.vstack([SUBJECTS, [1, 0, 0, 0, 0]])  # one answer says nothing about agreement
    assert fleiss(alone) == fleiss(SUBJECTS)


def test_kappas_without_data_are_none() -> None:
    assert cohen([], []) is None
    assert cohen(["a", "a"], ["a", "a"]) is None
    assert fleiss(np.empty((0, 4))) is None
    assert fleiss(np.empty(0)) is None
    assert fleiss(np.array([[2, 0], [3, 0]])) is None
    assert between([], "ann", "bob") is None
    assert among_all([]) is None
    assert every_two(by("ann", [LEFT])) == {}


def test_the_same_segment_is_the_same_answer_on_either_side() -> None:
    # segment 3 wins each time: shown left, shown right, and as the second of the pair
    for one in (
        row(1, LEFT, pair=(3, 5), left=1),
        row(2, RIGHT, pair=(3, 5), left=2),
        row(3, RIGHT, pair=(5, 3), left=1),
        row(4, LEFT, pair=(5, 3), left=2),
    ):
        assert category(one) == "lower"
    assert category(row(5, LEFT, pair=(5, 3))) == "higher"
    assert [category(row(6, p)) for p in (TIE, NONE)] == ["tie", "incomparable"]


def test_two_annotators_by_hand() -> None:
    ann = by("ann", [LEFT, LEFT, RIGHT, RIGHT, TIE, NONE])
    bob = by("bob", [LEFT, RIGHT, RIGHT, RIGHT, TIE], start=11)
    # both answered 5 pairs, 4 alike; p_e = (2·1 + 2·3 + 1·1) / 25 = .36, kappa (.8 - .36) / .64
    found = between([*ann, *bob], "ann", "bob")
    assert found is not None
    assert (found.n, found.agreement) == (5, 0.8)
    assert found.value == pytest.approx(0.6875)
    assert every_two([*ann, *bob]) == {("ann", "bob"): found}
    assert between([*ann, *bob], "ann", "ann") is None


def test_superseded_and_withdrawn_answers_do_not_count() -> None:
    ann, bob = by("ann", [LEFT, LEFT, LEFT]), by("bob", [LEFT, RIGHT, RIGHT], start=11)
    edit = row(21, LEFT, "bob", (1, 101), supersedes=12)
    undo = row(22, Preference.WITHDRAWN, "bob", (2, 102), supersedes=13)
    found = between([*ann, *bob, edit, undo], "ann", "bob")
    assert found is not None
    assert (found.n, found.agreement, found.value) == (2, 1.0, None)
    assert agreement.left_share([*ann, *bob, edit, undo]) == Share(5, 5)
    assert agreement.share_of([*bob, edit, undo], LEFT) == Share(2, 2)
    assert agreement.self_consistency([*bob, edit, undo]) is None


def test_three_annotators_by_hand() -> None:
    rows = [*by("a", [LEFT, LEFT, TIE]), *by("b", [LEFT, RIGHT, TIE], 11), *by("c", [LEFT, RIGHT], 21)]
    # P_i: 1, 1/3, 1; of 8 answers 4 lower, 2 higher, 2 tie: P_e = (16 + 4 + 4) / 64 = .375
    found = among_all(rows)
    assert found is not None
    assert (found.n, found.agreement) == (3, pytest.approx(7 / 9))
    assert found.value == pytest.approx((7 / 9 - 0.375) / 0.625)


def test_self_consistency_by_hand() -> None:
    rows = [
        row(1, LEFT, "ann", (1, 2), 1),
        row(2, RIGHT, "ann", (2, 1), 1),  # segment 1 again
        row(3, LEFT, "ann", (1, 2), 2),  # now segment 2
        row(4, TIE, "bob", (1, 2)),
        row(5, TIE, "bob", (1, 2)),
        row(6, LEFT, "ann", (1, 3)),
    ]
    assert agreement.self_consistency(rows, "ann") == Share(1, 2)
    assert agreement.self_consistency(rows, "bob") == Share(1, 1)
    assert agreement.self_consistency(rows) == Share(2, 3)
    assert agreement.self_consistency(rows[-1:], "ann") is None


def test_agreement_with_the_model_by_hand() -> None:
    rows = [row(1, LEFT), row(2, RIGHT), row(3, TIE), row(4, LEFT, "bob"), row(5, LEFT)]
    predicted = {1: 0.9, 2: 0.8, 3: 0.9, 4: 0.7, 5: 0.5}
    assert agreement.with_model(rows, predicted) == Share(2, 3)
    assert agreement.with_model(rows, predicted, "bob") == Share(1, 1)
    assert agreement.with_model(rows, {}) is None


def test_gold_questions_by_hand() -> None:
    rows = [row(1, LEFT), row(2, RIGHT), row(3, NONE), row(4, TIE), row(5, LEFT), row(6, RIGHT, left=2)]
    expected = {1: 1.0, 2: 1.0, 3: 1.0, 4: 0.5, 6: 1.0}
    assert agreement.gold_pass(rows, expected) == Share(3, 5)
    assert agreement.gold_pass(rows, expected, "bob") is None
    assert agreement.gold_pass(rows, {}) is None


def test_left_bias_by_hand() -> None:
    rows = [row(i, LEFT if i <= 8 else RIGHT) for i in range(1, 11)]
    share = agreement.left_share([*rows, row(11, TIE), row(12, NONE), row(13, LEFT, query_id=None)])
    assert share == Share(8, 10)
    assert share.interval == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert agreement.even(share)
    assert not agreement.even(Share(80, 100))
    assert agreement.left_share([row(1, TIE)]) is None


def test_shares_and_times_by_hand() -> None:
    rows = [row(i, TIE if i < 3 else LEFT, response_ms=1000 * i, created_ms=i) for i in range(1, 12)]
    assert agreement.share_of(rows, TIE) == Share(2, 11)
    assert agreement.share_of([], TIE) is None
    assert tempo.response_times(rows) == tempo.Times(11, 6000.0, 10_000.0)
    assert tempo.response_times([row(1, LEFT)]) is None


def test_pace_by_hand() -> None:
    hour = tempo.HOUR_MS
    rows = [row(i, LEFT, created_ms=i * hour // 10) for i in range(1, 31)]  # ten an hour, for three hours
    assert tempo.per_hour(rows, 3 * hour) == 11  # both ends of the hour belong to it
    assert tempo.per_hour(rows[:5], hour // 2) == pytest.approx(12.5)  # 5 in .4 h
    assert tempo.per_hour(rows[:1], hour // 10 + 1000) == 60  # one, and a minute at least
    assert tempo.per_hour(rows, 9 * hour) == 0
    assert tempo.per_hour([row(1, LEFT, query_id=None)], hour) is None
    assert tempo.time_left_ms(30, 50, 10) == 2 * hour
    assert tempo.time_left_ms(50, 50, None) == 0
    assert tempo.time_left_ms(30, 50, 0.0) is None
    assert tempo.time_left_ms(30, 50, None) is None


answers = st.lists(st.tuples(st.sampled_from(ANSWERS), st.sampled_from(ANSWERS)), min_size=1, max_size=30)


@given(answers)
def test_the_order_of_annotators_does_not_matter(said: list[tuple[Preference, Preference]]) -> None:
    one, two = by("ann", [a for a, _ in said]), by("bob", [b for _, b in said], 101)
    assert between([*one, *two], "ann", "bob") == between([*two, *one], "bob", "ann")
    assert among_all([*one, *two]) == among_all([*two, *one])


@given(answers)
def test_kappa_is_at_most_one_and_one_only_where_all_agree(said: list[tuple[Preference, Preference]]) -> None:
    one, two = by("ann", [a for a, _ in said]), by("bob", [b for _, b in said], 101)
    for kappa in (between([*one, *two], "ann", "bob"), among_all([*one, *two])):
        assert kappa is not None
        assert kappa.value is None or kappa.value <= 1 + 1e-12
        if kappa.value is not None:
            assert (kappa.agreement == 1) == (abs(kappa.value - 1) < 1e-12)


@given(st.lists(st.sampled_from(ANSWERS), min_size=2, max_size=30).filter(lambda said: len(set(said)) > 1))
def test_identical_answers_that_vary_give_one(said: list[Preference]) -> None:
    rows = [*by("ann", said), *by("bob", said, 101), *by("eve", said, 201)]
    assert all(k.value == 1 for k in every_two(rows).values())
    kappa = among_all(rows)
    assert kappa is not None
    assert kappa.value == pytest.approx(1)


def test_shuffled_answers_agree_as_chance_does() -> None:
    rng = np.random.default_rng(0)
    said = [ANSWERS[i] for i in rng.choice(4, 4000, p=[0.4, 0.4, 0.15, 0.05])]
    shuffled = [said[i] for i in rng.permutation(4000)]
    rows = [*by("ann", said), *by("bob", shuffled, 10_001)]
    kappa, many = between(rows, "ann", "bob"), among_all(rows)
    assert kappa is not None
    assert many is not None
    assert kappa.value == pytest.approx(0, abs=0.05)
    assert many.value == pytest.approx(0, abs=0.05)


def test_trends() -> None:
    rng = np.random.default_rng(0)
    up = np.arange(100) + 10 * rng.normal(size=100)
    assert trend(up) is Trend.RISING
    assert trend(-up) is Trend.FALLING
    assert trend(np.concatenate([up, up[-1] - np.arange(100)])) is Trend.FALLING  # only the newest half counts
    assert trend(np.ones(50)) is Trend.STEADY
    assert trend(np.arange(5)) is Trend.UNKNOWN
    assert trend(np.arange(8)) is Trend.RISING, "few points may be clear"
    assert trend(np.array([1.0, 3, 2, 5, 4, 7, 3, 5])) is Trend.UNKNOWN, "but do not tell that there is no trend"
    assert trend(np.array([math.nan] * 50)) is Trend.UNKNOWN
    assert trend(np.empty(0)) is Trend.UNKNOWN
    n_false = sum(trend(rng.normal(size=200)) is not Trend.STEADY for _ in range(400))
    assert n_false / 400 == pytest.approx(0.02, abs=0.02)  # two sides of 1 %


def test_the_watch_over_hacking_by_trends_where_nothing_is_held_out() -> None:
    up, down, flat, none = np.arange(50.0), -np.arange(50.0), np.ones(50), np.empty(0)
    few = Look(0, evidence([0.9] * (FEWEST_HELD_OUT - 1), [0.0] * (FEWEST_HELD_OUT - 1)), alarm=False)
    for unknown in (None, few):
        assert watch(up, down, flat, unknown).verdict is Verdict.HACKING
        assert watch(up, none, down, unknown).verdict is Verdict.HACKING
        assert watch(up, up, down, unknown).verdict is Verdict.HACKING
        assert watch(up, up, flat, unknown).verdict is Verdict.FINE
        assert watch(up, flat, none, unknown).verdict is Verdict.WATCH
        assert watch(down, down, down, unknown).verdict is Verdict.FINE
        assert watch(none, up, up, unknown).verdict is Verdict.UNKNOWN
        assert watch(up, down, flat, unknown).true is Trend.FALLING


def test_the_watch_over_hacking_by_what_people_say() -> None:
    up, down, none = np.arange(50.0), -np.arange(50.0), np.empty(0)
    right, wrong = (Look(0, evidence([0.8] * 30, [1.0] * 30), alarm) for alarm in (False, True))
    assert watch(none, none, none, wrong).verdict is Verdict.HACKING, "without any true return"
    assert watch(down, up, up, wrong).verdict is Verdict.HACKING
    assert watch(up, none, none, right).verdict is Verdict.FINE
    assert watch(up, none, down, right).verdict is Verdict.FINE, "what people say of it now is more than old answers"
    assert watch(up, down, down, right).verdict is Verdict.HACKING, "people see no harm, the true return does"
    assert watch(none, none, none, right).verdict is Verdict.FINE, "they tell enough by themselves"
    doubtful = Look(0, evidence([0.8] * 20, [1.0] * 14 + [0.0] * 6), alarm=False)
    assert watch(none, none, none, doubtful).verdict is Verdict.WATCH, "2 of 20 fewer than expected: no calm"
    assert watch(up, down, none, doubtful).verdict is Verdict.HACKING
