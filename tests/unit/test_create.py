"""What is noticed when a run goes on with other libraries than it began with."""

from __future__ import annotations

import dataclasses

import pytest

from prefrl import config
from prefrl.errors import ConfigError
from prefrl.reward_model import nets, selection
from prefrl.rollout import learners
from prefrl.run.create import check_versions, new_run, prepare
from prefrl.store.engine import Database
from prefrl.store.metrics import events
from prefrl.store.runs import Run


@pytest.fixture
def run(sqlite_url: str):
    with Database.create(sqlite_url) as db:
        settings, versions = prepare(config.RunConfig())
        yield db, new_run(db, "r", settings, versions)


def _began_with(run: Run, **versions: object) -> Run:
    return dataclasses.replace(run, versions={**run.versions, **versions})


def test_the_same_libraries_are_not_mentioned(run) -> None:
    db, same = run
    assert check_versions(db, same) == []
    assert events(db, same.id) == []


def test_another_version_is_said_and_noted(run) -> None:
    db, same = run
    (line,) = check_versions(db, _began_with(same, mujoco="2.1.0"))
    assert line.startswith("run 'r' began with mujoco 2.1.0 and goes on with ")
    check_versions(db, _began_with(same, mujoco="2.1.0"))
    assert [e.message for e in events(db, same.id)] == [line], "once, however often the run goes on"


def test_other_spaces_are_refused(run) -> None:
    db, same = run
    old = _began_with(same, spaces={**same.versions["spaces"], "obs_shape": [111]}, gymnasium="0.29.1")
    with pytest.raises(ConfigError, match=r"began with observations of shape \(111,\) .*gymnasium 0\.29\.1"):
        check_versions(db, old)
    assert events(db, same.id) == []


def test_a_space_that_is_only_written_otherwise_is_not_refused(run) -> None:
    db, same = run
    (line,) = check_versions(db, _began_with(same, action_space="Box(-1, 1, (6,))"))
    assert "began with action space Box(-1, 1, (6,))" in line


def test_the_names_that_need_no_trial_are_those_that_ship() -> None:
    assert set(config.LEARNERS) == set(learners.LEARNERS)
    assert set(config.NETS) == set(nets.NETS)
    assert set(config.SELECTORS) == set(selection.SELECTORS)
