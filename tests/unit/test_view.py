"""The lines that a run prints where no terminal shows a table."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from prefrl.config import RunConfig
from prefrl.resolve import resolve
from prefrl.reward_model.held_out import ALARM, Evidence, evidence, window_to_metrics
from prefrl.run import view
from prefrl.run.status import RoleStatus, Status, read_status
from prefrl.settings import to_dict
from prefrl.store.engine import Database
from prefrl.store.runs import create_run


@pytest.fixture
def status(tmp_path: Path) -> Status:
    with Database.create(f"sqlite:///{tmp_path}/run.db") as db:
        create_run(db, "r", to_dict(resolve(RunConfig())), {})
        return read_status(db, "r")


def test_a_run_on_a_frozen_reward_says_whose_and_counts_no_comparisons(status: Status) -> None:
    frozen = dataclasses.replace(status, origin="taught@3", budget=0, scheduled=0, reward_version=1)
    assert view.line(frozen, 0.0) == "0 of 300,000 steps | reward of taught@3, frozen"
    out = io.StringIO()
    Console(file=out, width=200).print(view.table(frozen, 0.0))
    assert "of taught@3, frozen" in out.getvalue()
    assert "comparisons" not in out.getvalue()
    assert "frozen" not in view.line(status, 0.0)
    afresh = dataclasses.replace(frozen, origin="taught")
    assert view.line(afresh, 0.0).endswith("reward fitted to the comparisons of taught, frozen")


def test_the_line_tells_what_was_held_out(status: Status) -> None:
    assert "held out" not in view.line(status, 0.0)
    told = dataclasses.replace(status, metrics=window_to_metrics(evidence([0.9] * 30, [1.0] * 26 + [0.0] * 4)))
    assert view.line(told, 0.0).endswith("held out: newer clip preferred in 26 of the last 30; the reward expected 27")


def test_a_run_that_waits_says_for_what_and_says_it_once(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100, 1000, 11))
    monkeypatch.setattr(view.time, "monotonic", lambda: float(next(clock)))
    out = io.StringIO()
    shown = view.View(Console(file=out, width=200))
    reward = RoleStatus("reward", "here", 1, "waiting for the first comparisons: 25 of 225", 0, True, False)
    for steps in (1000, 2100, 3200, 3200, 3200, 3200):
        shown.show(dataclasses.replace(status, env_steps=steps, roles=[reward]))
    lines = out.getvalue().splitlines()
    assert [line.split(" of ")[0] for line in lines] == ["1,000", "2,100", "3,200"]
    assert all("waiting for the first comparisons: 25 of 225" in line for line in lines)
    assert "100 steps/s" in lines[-1]
    shown.show(dataclasses.replace(status, env_steps=3200, roles=[dataclasses.replace(reward, state="fitting")]))
    assert "100 steps/s" in out.getvalue().splitlines()[-1], "while it waited it was not slow"
    assert len(out.getvalue().splitlines()) == 4


def test_what_is_held_out_is_shown_before_there_is_cause_for_alarm(status: Status) -> None:
    def shown(metrics: dict[str, float]) -> str:
        out = io.StringIO()
        Console(file=out, width=200).print(view.table(dataclasses.replace(status, metrics=metrics), 0.0))
        return out.getvalue()

    window = window_to_metrics(Evidence(n=30, claimed=26.6, seen=24.5))
    assert "newer clip preferred in 24.5 of the last 30; the reward expected 27" in shown(window)
    assert "alarm" not in shown(window)
    assert "exploited" in shown(window | {ALARM: 1.0})
    assert "held out" not in shown(window_to_metrics(Evidence()))
