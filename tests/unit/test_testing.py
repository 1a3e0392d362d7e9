"""The checkers accept what ships and refuse what is broken, with the reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prefrl.errors import PrefrlError
from prefrl.oracle.teachers import TEACHERS
from prefrl.reward_model.nets import NETS, MLPEnsemble
from prefrl.reward_model.selection import SELECTORS, by_logit
from prefrl.testing import check_learner, check_net, check_oracle, check_selector
from prefrl.types import Preference


@pytest.mark.parametrize("make", TEACHERS.values(), ids=TEACHERS.keys())
def test_the_teachers_pass(make) -> None:
    check_oracle(make)


@pytest.mark.parametrize("select", [*SELECTORS.values(), by_logit])
def test_the_selectors_pass(select) -> None:
    check_selector(select)


@pytest.mark.parametrize(("net", "image"), [("mlp", None), ("cnn", (4, 56, 60)), ("cnn-small", (4, 42, 42))])
def test_the_nets_pass(net: str, image: tuple[int, int, int] | None) -> None:
    check_net(NETS[net], image)


@pytest.mark.parametrize("name", ["trpo", "a2c", "ppo"])
@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
def test_the_learners_pass(name) -> None:
    check_learner(name)


def test_oracles_are_refused_with_the_reason() -> None:
    rng = np.random.default_rng()
    with pytest.raises(PrefrlError, match="answered 1"):
        check_oracle(lambda: lambda left, right, statistics, own: 1)
    with pytest.raises(PrefrlError, match="draw from the rng"):
        check_oracle(lambda: lambda left, right, statistics, own: list(Preference)[rng.integers(2)])

    def spoil(left, right, statistics, own):
        left.rewards[:] = 0
        return Preference.TIE

    with pytest.raises(PrefrlError, match="changed the segments"):
        check_oracle(lambda: spoil)


def test_selectors_are_refused_with_the_reason() -> None:
    with pytest.raises(PrefrlError, match="when 1 were asked for"):
        check_selector(lambda ensemble, obs, act, candidates, n: candidates)
    with pytest.raises(PrefrlError, match="twice"):
        check_selector(lambda ensemble, obs, act, candidates, n: candidates[np.zeros(n, int)])


def test_nets_are_refused_with_the_reason() -> None:
    class Summed(MLPEnsemble):
        def forward(self, obs, act):
            return super().forward(obs + obs.mean(0, keepdim=True), act)

    class Wrong(MLPEnsemble):
        def forward(self, obs, act):
            return super().forward(obs, act).sum(0)

    class Frozen(MLPEnsemble):
        def forward(self, obs, act):
            return super().forward(obs, act).detach() + torch.zeros(1, requires_grad=True)

    for cls, reason in ((Summed, "another"), (Wrong, "not to"), (Frozen, "no parameter")):
        with pytest.raises(PrefrlError, match=reason):
            check_net(cls)
