"""A study's grid, task x method x labels x seed, as a TOML file.

mode = "lockstep"                  # or "async"

[settings]                         # of every cell, as in `prefrl run --config`
query.pool = 512

[methods.small-net]                # beside those of experiments/methods.py
reward.n_members = 1

[[grid]]                           # every combination is a cell; a single value needs no brackets
task = ["pendulum"]
method = ["rl", "original"]        # a method on the true reward has one cell a seed, whatever the labels
labels = [200, 700]
seed = "0-9"
steps = 60000
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.methods import METHODS, Settings
from prefrl.config import RunConfig
from prefrl.errors import ConfigError, PrefrlError, nearest
from prefrl.flags import load_toml
from prefrl.presets import merged
from prefrl.run.create import check_start, prepare
from prefrl.settings import from_given, to_dict

MODES = ("lockstep", "async")
TOP = ("mode", "settings", "methods", "grid")
AXES = ("task", "method", "labels", "seed", "steps")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        labels: Comparisons, or None on the true reward.
        settings: What its run's configuration differs in from the defaults.
    """

    task: str
    method: str
    labels: int | None
    seed: int
    mode: str
    settings: Settings

    @property
    def config(self) -> RunConfig:
        """Of its run, before the task's defaults are filled in."""
        return from_given(self.settings)

    @property
    def name(self) -> str:
        """Of its folder: of cells that differ in any setting no two are alike."""
        text = json.dumps([self.mode, to_dict(self.config)], sort_keys=True)
        parts = [self.task.replace("/", "-").replace(":", "-"), self.method, self.labels, f"seed{self.seed}"]
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        return "_".join(str(part) for part in [*parts, digest] if part is not None)


def read_grid(path: Path) -> list[Cell]:
    """The cells of a grid file, checked: each could be started.

    Raises:
        ConfigError: Names the file, what is wrong in it and the nearest valid name.
    """
    try:
        return cells_of(load_toml(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from error


def cells_of(values: Mapping[str, Any]) -> list[Cell]:
    """The cells of a grid, each once, in the file's order, seed by seed so that a study is soon seen whole.

    Raises:
        ConfigError: Names what is wrong and the nearest valid name.
    """
    _known("key", values, TOP)
    mode = values.get("mode", "lockstep")
    if mode not in MODES:
        raise ConfigError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}{nearest(str(mode), MODES)}")
    methods = {**METHODS, **_table(values, "methods")}
    for name, one in methods.items():
        if not NAME.fullmatch(name) or not isinstance(one, dict):
            raise ConfigError(f"methods.{name} must be a table of settings, its name letters, digits, - and _")
    grids = values.get("grid")
    if not isinstance(grids, list) or not grids or not all(isinstance(grid, dict) for grid in grids):
        raise ConfigError("there is no [[grid]] table, so there is nothing to run")
    cells: dict[str, Cell] = {}
    for grid in grids:
        for cell in _cells(grid, mode, _table(values, "settings"), methods):
            cells.setdefault(cell.name, cell)
    _check_apart(list(cells.values()))
    _check(list(cells.values()))
    return sorted(cells.values(), key=lambda cell: cell.seed)


def parse_seeds(text: object) -> list[int]:
    """``"0-9"``, ``"0,3,5"``, a number or a list of numbers.

    Raises:
        ConfigError: It is none of these.
    """
    try:
        if isinstance(text, str):
            ranges = [part.partition("-") for part in text.split(",")]
            seeds = [s for a, _, b in ranges for s in range(int(a), int(b or a) + 1)]
        else:
            seeds = [int(seed) for seed in (text if isinstance(text, list) else [text])]
    except (TypeError, ValueError):
        seeds = []
    if not seeds:
        raise ConfigError(f'seed is {text!r}; write "0-9", "0,3,5" or [0, 3, 5]')
    return seeds


def _cells(grid: dict[str, Any], mode: str, common: Settings, methods: dict[str, Settings]) -> list[Cell]:
    _known("key of [[grid]]", grid, AXES)
    missing = [axis for axis in ("task", "method", "seed", "steps") if axis not in grid]
    if missing:
        raise ConfigError(f"a [[grid]] has no {missing[0]}")
    tasks, names, labels = (_several(grid.get(axis)) for axis in ("task", "method", "labels"))
    _known("method", names, methods)
    cells = []
    for task, method, n_labels, seed in itertools.product(tasks, names, labels, parse_seeds(grid["seed"])):
        given = {"env": {"id": task}, "policy": {"steps": grid["steps"]}, "seed": seed}
        settings = merged(common, methods[method], given)
        learned = from_given(settings).reward.source == "learned"
        if learned and n_labels is not None:
            settings = merged(settings, {"label": {"budget": n_labels}})
        cells.append(Cell(task, method, n_labels if learned else None, seed, mode, settings))
    return cells


def _check_apart(cells: list[Cell]) -> None:
    """A study's curves are over the same steps, and a method means one thing in it.

    Raises:
        ConfigError: Names two cells that nothing in its tables would tell apart.
    """
    seen: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        same = seen.setdefault((cell.task, cell.method, cell.labels, cell.seed), cell)
        if same is not cell:
            raise ConfigError(
                f"{cell.task}, {cell.method}, seed {cell.seed} is there twice with different settings (steps "
                f"{same.config.policy.steps} and {cell.config.policy.steps}): give one of them a method of its own "
                "under [methods], or a file of its own"
            )


def _check(cells: list[Cell]) -> None:
    """Whether each could be started; cells that differ in their seed alone are checked once.

    Raises:
        ConfigError: Names the cell.
    """
    seen = set()
    for cell in cells:
        unseeded = dataclasses.replace(cell, seed=0, settings={**cell.settings, "seed": 0})
        if unseeded.name in seen:
            continue
        seen.add(unseeded.name)
        try:
            config, _ = prepare(cell.config)
            check_start(cell.mode, config)
        except PrefrlError as error:
            raise ConfigError(f"{cell.task}, {cell.method}: {error}") from error


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise ConfigError(f"[{key}] must be a table, not {table!r}")
    return table


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _known(what: str, names: Any, known: Any) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown {what} {name!r}; there are {', '.join(known)}{nearest(str(name), known)}")
