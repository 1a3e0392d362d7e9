"""The batched networks: the same as single ones, and each member on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn

from prefrl.reward_model.nets import LEAKY_SLOPE, NETS, BatchedLinear, MLPEnsemble

OBS, ACT, N = 5, 2, 12


def _net(n_members: int, seed: int = 0, dropout: float = 0.0) -> MLPEnsemble:
    return MLPEnsemble(n_members, OBS, ACT, seed=seed, dropout=dropout)


def _inputs(n_members: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The same rows for member m, whatever the number of members: (M, N, obs), (M, N, act)."""
    rows = [torch.Generator().manual_seed(seed + 100 * m) for m in range(n_members)]
    obs = torch.stack([torch.randn(N, OBS, generator=g) for g in rows])
    act = torch.stack([torch.randn(N, ACT, generator=g) for g in rows])
    return obs, act


def _plain(net: MLPEnsemble, member: int) -> nn.Sequential:
    """Member m as torch's own layers."""
    plain = nn.Sequential(
        nn.Linear(OBS + ACT, 64), nn.LeakyReLU(0.01), nn.Linear(64, 64), nn.LeakyReLU(0.01), nn.Linear(64, 1)
    )
    with torch.no_grad():
        for linear, batched in zip(plain[::2], net.layers, strict=True):
            assert isinstance(batched, BatchedLinear)
            linear.weight.copy_(batched.weight[member].T)
            linear.bias.copy_(batched.bias[member, 0])
    return plain


def test_equals_a_loop_over_plain_networks() -> None:
    net, (obs, act) = _net(4), _inputs(4)
    looped = torch.stack([_plain(net, m)(torch.cat([obs[m], act[m]], -1)).squeeze(-1) for m in range(4)])
    assert net(obs, act).shape == (4, N)
    torch.testing.assert_close(net(obs, act), looped, rtol=1e-5, atol=1e-6)


def test_gradients_equal_those_of_plain_networks() -> None:
    net, (obs, act) = _net(3), _inputs(3)
    net(obs, act).square().sum().backward()
    for m in range(3):
        plain = _plain(net, m)
        plain(torch.cat([obs[m], act[m]], -1)).square().sum().backward()
        for linear, batched in zip(plain[::2], net.layers, strict=True):
            torch.testing.assert_close(batched.weight.grad[m].T, linear.weight.grad, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(batched.bias.grad[m, 0], linear.bias.grad, rtol=1e-4, atol=1e-6)


def test_architecture_of_the_paper() -> None:
    assert LEAKY_SLOPE == 0.01
    shapes = [tuple(p.shape) for p in _net(3).parameters()]
    assert shapes == [(3, 7, 64), (3, 1, 64), (3, 64, 64), (3, 1, 64), (3, 64, 1), (3, 1, 1)]
    assert NETS["mlp"] is MLPEnsemble


def test_leaky_slope_by_hand() -> None:
    """One unit in each layer, weights 1 and biases 0: two leaky units turn x < 0 into 0.0001 x."""
    net = MLPEnsemble(1, 1, 1, seed=0, hidden=1)
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.fill_(0.0 if name.endswith("bias") else 1.0)
    x, zero = torch.tensor([[[2.0], [-3.0]]]), torch.zeros(1, 2, 1)
    torch.testing.assert_close(net(x, zero), torch.tensor([[2.0, -3.0e-4]]))


@pytest.mark.parametrize("n_members", [1, 2, 5])
def test_a_members_start_does_not_depend_on_the_number_of_members(n_members: int) -> None:
    few, many = _net(n_members), _net(10)
    for p, q in zip(few.parameters(), many.parameters(), strict=True):
        assert torch.equal(p, q[:n_members])
    outputs = many(*_inputs(10))[:n_members]
    torch.testing.assert_close(few(*_inputs(n_members)), outputs, rtol=1e-5, atol=1e-6)


def test_members_and_seeds_start_apart() -> None:
    first = {tuple(net.layers[0].weight[m].flatten().tolist()) for net in (_net(3), _net(3, seed=1)) for m in range(3)}
    assert len(first) == 6


def test_making_a_net_leaves_the_global_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    _net(3)
    assert torch.equal(torch.rand(3), expected)


def test_initial_weights_are_those_of_torch_linear() -> None:
    """Uniform within 1 / sqrt(n_in), weights and biases."""
    for layer, n_in in zip(_net(20).layers, (7, 64, 64), strict=True):
        bound = n_in**-0.5
        for p in (layer.weight, layer.bias):
            assert p.abs().max() <= bound
        assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert layer.weight.abs().max() > 0.95 * bound


def test_a_members_gradient_is_its_own() -> None:
    net, (obs, act) = _net(3), _inputs(3)
    net(obs, act)[1].sum().backward()
    for p in net.parameters():
        assert p.grad is not None
        assert p.grad[[0, 2]].abs().sum() == 0
        assert p.grad[1].abs().sum() > 0


def _steps(n_members: int, make: Callable[[Iterable[Tensor]], torch.optim.Optimizer], reduce: str) -> list[Tensor]:
    """How far the parameters of member 0 move in three steps on its own data."""
    net, (obs, act) = _net(n_members), _inputs(n_members)
    before = [p[0].detach().clone() for p in net.parameters()]
    optimizer = make(net.parameters())
    for _ in range(3):
        losses = (net(obs, act) - 1).square().mean(1)  # (M,)
        optimizer.zero_grad()
        getattr(losses, reduce)().backward()
        optimizer.step()
    return [p[0].detach() - old for p, old in zip(net.parameters(), before, strict=True)]


def _relative_difference(steps: list[Tensor], others: list[Tensor]) -> float:
    a, b = (torch.cat([t.flatten() for t in x]) for x in (steps, others))
    return float((a - b).norm() / b.norm())


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3, eps=1e-4),
}


@pytest.mark.parametrize("n_members", [3, 10])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_members_step_does_not_depend_on_the_number_of_members(optimizer: str, n_members: int) -> None:
    alone = _steps(1, OPTIMIZERS[optimizer], "sum")
    assert _relative_difference(_steps(n_members, OPTIMIZERS[optimizer], "sum"), alone) < 1e-5


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_averaging_the_members_losses_would_divide_the_step(optimizer: str) -> None:
    """Negative control: this is how an ensemble came to learn three times slower."""
    alone = _steps(1, OPTIMIZERS[optimizer], "sum")
    assert _relative_difference(_steps(3, OPTIMIZERS[optimizer], "mean"), alone) > 1e-3


def test_dropout_acts_in_train_mode_only() -> None:
    net, (obs, act) = _net(2, dropout=0.5), _inputs(2)
    net.train()
    assert not torch.equal(net(obs, act), net(obs, act))
    net.eval()
    assert torch.equal(net(obs, act), net(obs, act))
    torch.testing.assert_close(net(obs, act), _net(2)(obs, act))
