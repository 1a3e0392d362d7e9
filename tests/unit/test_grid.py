"""A study's grid: which cells it has, and what is refused before anything starts."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from experiments.grid import cells_of, parse_seeds, read_grid
from prefrl.errors import ConfigError
from prefrl.presets import merged

GRID = """
[settings]
reward.fit_steps = 7
[methods.three]
reward.n_members = 3
query.selector = "random"
[[grid]]
task = "pendulum"
method = ["rl", "original"]
labels = [200, 700]
seed = "0-2"
steps = 60000
[[grid]]
task = ["pendulum", "cheetah"]
method = "three"
labels = 200
seed = 5
steps = 60000
"""


def grid(text: str = GRID, **changes: str):
    for old, new in changes.items():
        text = text.replace(old, new)
    return tomllib.loads(text)


def test_every_combination_is_a_cell_once() -> None:
    cells = cells_of(grid())
    found = [(c.task, c.method, c.labels, c.seed) for c in cells]
    assert found == [
        *(("pendulum", m, n, s) for s in range(3) for m, n in (("rl", None), ("original", 200), ("original", 700))),
        ("pendulum", "three", 200, 5),
        ("cheetah", "three", 200, 5),
    ]
    assert len({c.name for c in cells}) == len(cells)
    assert all(c.config.reward.fit_steps == 7 and c.config.policy.steps == 60000 for c in cells)
    assert [c.config.reward.source for c in cells[:3]] == ["true", "learned", "learned"]
    assert [c.config.label.budget for c in cells[:3]] == [None, 200, 700]
    last = cells[-1].config
    assert (last.env.id, last.seed, last.query.selector, last.label.budget) == ("cheetah", 5, "random", 200)


def test_a_cell_of_other_settings_has_another_name() -> None:
    one, two = (cells_of(grid(**{"fit_steps = 7": f"fit_steps = {n}"}))[0] for n in (7, 8))
    assert one.name != two.name
    assert one.name == cells_of(grid())[0].name


def test_the_same_cell_in_two_grids_is_one() -> None:
    twice = grid()
    twice["grid"].append(twice["grid"][0])
    assert cells_of(twice) == cells_of(grid())


def test_cells_that_the_tables_cannot_tell_apart_are_refused() -> None:
    twice = grid()
    twice["grid"].append({**twice["grid"][0], "steps": 80000})
    with pytest.raises(ConfigError, match=r"pendulum, rl, seed 0 is there twice .*60000 and 80000"):
        cells_of(twice)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('"rl", ', '"original", "random-query", ', r"unknown method 'random-query'.*did you mean random-queries\?"),
        ('task = "pendulum"', 'task = "pendulun"', r"pendulun.*pendulum"),
        ("labels = 200", "label = 200", r"unknown key of \[\[grid\]\] 'label'.*did you mean labels\?"),
        ("[methods.three]", "[method.three]", r"unknown key 'method'.*did you mean methods\?"),
        ("reward.fit_steps", "reward.fit_step", r"fit_step\b.*fit_steps"),
        ('selector = "random"', 'selector = "randon"', r"pendulum, three: .*randon.*random"),
        ("labels = [200, 700]", "labels = [0]", r"label.budget must be at least 1"),
        ("steps = 60000", "steps = 10", r"pendulum, rl: policy.steps is 10"),
        ('seed = "0-2"', 'seed = "0..2"', r'seed is \'0..2\'; write "0-9"'),
        ("[settings]", 'mode = "lockstop"\n[settings]', r"did you mean lockstep\?"),
        ("seed = 5\n", "", r"a \[\[grid\]\] has no seed"),
        ("[[grid]]", "[[grids]]", r"unknown key 'grids'.*did you mean grid\?"),
    ],
)
def test_what_cannot_run_is_named_with_what_was_meant(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in GRID
    path = tmp_path / "study.toml"
    path.write_text(GRID.replace(old, new))
    with pytest.raises(ConfigError, match=r"study\.toml: ") as caught:
        read_grid(path)
    caught.match(named)


def test_people_cannot_be_in_a_study_of_single_processes() -> None:
    with pytest.raises(ConfigError, match="cannot wait for people"):
        cells_of(grid(**{"reward.fit_steps = 7": 'label.oracle = "none"'}))


def test_seeds() -> None:
    assert parse_seeds("0-2,7") == [0, 1, 2, 7]
    assert parse_seeds([4, 2]) == [4, 2]
    assert parse_seeds(3) == [3]
    for bad in ("", "a", "3-1", None, [], ["x"]):
        with pytest.raises(ConfigError, match="seed is"):
            parse_seeds(bad)


def test_later_settings_win_leaf_by_leaf() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "seed": 0}, {"a": {"y": 3}}, {"seed": 4}) == {
        "a": {"x": 1, "y": 3},
        "seed": 4,
    }
