"""The preference model and its loss: values by hand, the naive formula, the limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prefrl.reward_model.loss import log_preference, preference_loss

NOISES = st.floats(0.0, 0.99)


def _naive(z: float, noise: float) -> float:
    """P' as the paper writes it: a logistic, mixed with uniform answers."""
    return (1 - noise) / (1 + math.exp(-z)) + noise / 2


def _z(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("z", "p"),
    [
        (0.0, 0.5),
        (math.log(3), 0.9 * 0.75 + 0.05),  # sigmoid = 3/4
        (-math.log(3), 0.9 * 0.25 + 0.05),
        (math.log(19), 0.9 * 0.95 + 0.05),
    ],
)
def test_noise_mixes_a_tenth_of_uniform_answers_into_the_preference(z: float, p: float) -> None:
    assert float(log_preference(_z(z), 0.1).exp()) == pytest.approx(p, abs=1e-12)


def test_the_worked_example() -> None:
    """Returns that differ by 1.5: P = 0.817, loss 0.20 or 1.70; with the noise P' = 0.786."""
    plain, noisy = log_preference(_z(1.5, -1.5), 0.0), log_preference(_z(1.5), 0.1)
    assert float(plain[0].exp()) == pytest.approx(0.817, abs=1e-3)
    assert -float(plain[0]) == pytest.approx(0.20, abs=5e-3)
    assert -float(plain[1]) == pytest.approx(1.70, abs=5e-3)
    assert float(noisy.exp()) == pytest.approx(0.786, abs=1e-3)


def test_loss_of_each_kind_of_answer_by_hand() -> None:
    z = _z(math.log(3), math.log(3), math.log(3))
    loss = preference_loss(z, _z(1.0, 0.0, 0.5), 0.1)
    p = 0.725
    expected = [-math.log(p), -math.log(1 - p), -0.5 * math.log(p) - 0.5 * math.log(1 - p)]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)


def test_losses_are_returned_apart_for_members_and_comparisons() -> None:
    z = torch.tensor([[0.0, 2.0], [-1.0, 0.5]], dtype=torch.float64)
    mu = _z(1.0, 0.0)
    loss = preference_loss(z, mu, 0.1)
    assert loss.shape == (2, 2)
    for m in range(2):
        for b in range(2):
            p = _naive(float(z[m, b]), 0.1)
            expected = -math.log(p) if mu[b] == 1 else -math.log(1 - p)
            assert float(loss[m, b]) == pytest.approx(expected, abs=1e-12)


@given(st.floats(-30, 30), NOISES, st.floats(0, 1))
def test_equals_the_naive_formula_where_that_works(z: float, noise: float, mu: float) -> None:
    p, q = _naive(z, noise), _naive(-z, noise)
    loss = preference_loss(_z(z), _z(mu), noise)
    assert float(loss) == pytest.approx(-(mu * math.log(p) + (1 - mu) * math.log(q)), rel=1e-9, abs=1e-9)


@given(st.floats(-1e4, 1e4), NOISES)
def test_preferring_a_and_preferring_b_are_complementary(z: float, noise: float) -> None:
    total = log_preference(_z(z), noise).exp() + log_preference(_z(-z), noise).exp()
    assert float(total) == pytest.approx(1.0, abs=1e-12)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), NOISES)
def test_a_larger_difference_never_lowers_the_preference(z: float, other: float, noise: float) -> None:
    low, high = sorted((z, other))
    assert float(log_preference(_z(low), noise)) <= float(log_preference(_z(high), noise)) + 1e-12


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("mu", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("z", [1e4, -1e4])
def test_huge_differences_give_finite_losses_and_gradients(z: float, mu: float, noise: float) -> None:
    x = torch.tensor([z], requires_grad=True)  # float32, as in training
    loss = preference_loss(x, torch.tensor([mu]), noise)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


def test_the_naive_formula_fails_there() -> None:
    """Negative control: without the work on logits, the test above would not pass."""
    x = torch.tensor([-1e4], requires_grad=True)
    loss = -torch.log(torch.sigmoid(x))
    assert not torch.isfinite(loss).all()


def test_a_confidently_wrong_answer_is_capped_and_loses_its_gradient() -> None:
    cap = -math.log(0.05)
    x = torch.tensor([-1e4, -50.0, 3.0], dtype=torch.float64, requires_grad=True)
    loss = preference_loss(x, torch.tensor(1.0), 0.1)
    assert loss[:2].tolist() == pytest.approx([cap, cap], abs=1e-9)
    assert bool((loss <= cap).all())
    loss.sum().backward()
    assert x.grad is not None
    assert x.grad[:2].abs().max() < 1e-12
    without = torch.tensor([-50.0], dtype=torch.float64, requires_grad=True)
    preference_loss(without, torch.tensor(1.0), 0.0).sum().backward()
    assert without.grad is not None
    assert float(without.grad) == pytest.approx(-1.0)  # the noise is what takes the gradient away


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5])
def test_a_tie_wants_equal_returns(noise: float) -> None:
    z = torch.linspace(-5, 5, 1001, dtype=torch.float64)
    loss = preference_loss(z, torch.tensor(0.5), noise)
    assert float(z[loss.argmin()]) == pytest.approx(0.0, abs=1e-9)
    assert float(loss.min()) == pytest.approx(math.log(2))
    torch.testing.assert_close(loss, loss.flip(0))


def test_without_noise_the_plain_cross_entropy_is_left() -> None:
    z = torch.linspace(-20, 20, 41, dtype=torch.float64)
    mu = (torch.arange(41) % 2).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(z, mu, reduction="none")
    torch.testing.assert_close(preference_loss(z, mu, 0.0), expected)


@pytest.mark.parametrize("z", [-4.0, 0.0, 0.7, 6.0])
def test_gradient_by_hand(z: float) -> None:
    """d/dz of -log P' is -(1 - noise) s (1 - s) / P' with s the logistic."""
    x = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    preference_loss(x, torch.tensor(1.0), 0.1).sum().backward()
    s = 1 / (1 + math.exp(-z))
    assert x.grad is not None
    assert float(x.grad) == pytest.approx(-0.9 * s * (1 - s) / _naive(z, 0.1), rel=1e-9)
