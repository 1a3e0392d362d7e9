"""Plug-ins by name: built in, installed, or given as module:attribute; and what a wrong name says."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from prefrl.config import RewardConfig
from prefrl.errors import ConfigError
from prefrl.oracle.teachers import Judged, ReturnStatistics, make_teacher
from prefrl.registry import find
from prefrl.reward_model.ensemble import RewardEnsemble
from prefrl.reward_model.nets import MLPEnsemble
from prefrl.reward_model.selection import SELECTORS, at_random
from prefrl.reward_model.spaces import Spaces

BUILT_IN = {"disagreement": 1, "random": 2}
PLUGIN = '''
from prefrl.reward_model.nets import MLPEnsemble
from prefrl.types import Preference

ANSWER = 42

def favourite(side="left"):
    """An oracle that always says the same."""
    return lambda left, right, stats, rng: Preference(side)

def wide(n_members, obs_dim, act_dim, *, seed, dropout):
    """A net of another width."""
    return MLPEnsemble(n_members, obs_dim, act_dim, seed=seed, dropout=dropout, hidden=7)
'''
ENTRY_POINTS = """
[prefrl.selector]
mine = plugin_of_a_test:ANSWER
random = plugin_of_a_test:ANSWER
gone = module_that_is_not_there:thing
empty = plugin_of_a_test:nothing

[prefrl.oracle]
favourite = plugin_of_a_test:favourite
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with entry points, as pip would install it."""
    (tmp_path / "plugin_of_a_test.py").write_text(PLUGIN)
    info = tmp_path / "plugin_of_a_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-a-test\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()


def test_a_built_in_name() -> None:
    assert find("selector", "random", BUILT_IN) == 2
    assert find("selector", "random", SELECTORS) is at_random


def test_module_and_attribute() -> None:
    assert find("net", "prefrl.reward_model.nets:MLPEnsemble", {}) is MLPEnsemble


@pytest.mark.usefixtures("installed")
def test_an_installed_entry_point_of_the_right_kind() -> None:
    assert find("selector", "mine", BUILT_IN) == 42
    with pytest.raises(ConfigError, match="unknown net 'mine'"):
        find("net", "mine", BUILT_IN)


@pytest.mark.usefixtures("installed")
def test_what_is_built_in_cannot_be_replaced_by_installing_something() -> None:
    assert find("selector", "random", BUILT_IN) == 2


def test_an_unknown_name_says_what_there_is_and_what_is_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        find("selector", "randon", BUILT_IN)
    assert str(caught.value) == (
        "unknown selector 'randon'; known: disagreement, random, or module:attribute; did you mean random?"
    )


@pytest.mark.usefixtures("installed")
def test_installed_names_are_listed_too() -> None:
    with pytest.raises(ConfigError, match=r"known: disagreement, random, .*mine.*did you mean mine\?"):
        find("selector", "mime", BUILT_IN)


def test_a_name_like_nothing_gets_no_guess() -> None:
    with pytest.raises(ConfigError) as caught:
        find("selector", "xyzzy", BUILT_IN)
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("module_that_is_not_there:thing", "No module named 'module_that_is_not_there'"),
        ("prefrl.reward_model.nets:Nothing", "has no attribute 'Nothing'"),
        ("prefrl.reward_model.nets:", "cannot be imported"),
        (":thing", "Empty module name"),
        ("math:inf:nan", "has no attribute 'inf:nan'"),
        (".relative:thing", "relative"),
    ],
)
def test_what_cannot_be_imported_is_named(name: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        find("net", name, {})
    assert str(caught.value).startswith(f"net {name!r} cannot be imported: ")
    assert reason in str(caught.value)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["gone", "empty"])
def test_a_broken_entry_point_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=f"selector '{name}' cannot be imported"):
        find("selector", name, BUILT_IN)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["favourite", "plugin_of_a_test:favourite"])
def test_an_oracle_of_ones_own(name: str) -> None:
    teacher, _ = make_teacher(name, {"side": "right"})
    stats, seen = ReturnStatistics(1.0, 0.0), Judged(np.ones(3), np.ones((3, 2)), np.ones((3, 1)))
    assert teacher(seen, seen, stats, np.random.default_rng(0)) == "right"
    with pytest.raises(ConfigError, match="sides"):
        make_teacher(name, {"sides": "right"})


@pytest.mark.usefixtures("installed")
def test_a_net_of_ones_own() -> None:
    config = RewardConfig(net="plugin_of_a_test:wide", n_members=2)
    ensemble = RewardEnsemble(Spaces((3,), (1,)), config, seed=0)
    assert next(tuple(p.shape) for p in ensemble.net.parameters()) == (2, 4, 7)
    assert ensemble.reward(np.zeros((5, 3)), np.zeros((5, 1))).shape == (5,)
