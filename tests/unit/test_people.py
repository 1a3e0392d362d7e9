"""What a supervised run with people does beside its roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefrl import cli
from prefrl.config import LabelConfig, RunConfig
from prefrl.errors import StoreError
from prefrl.run import create, people
from prefrl.run.people import MAX_DEATHS, Page, PageOptions
from prefrl.run.supervisor import PATIENCE_S, Supervisor
from prefrl.settings import to_dict
from prefrl.store import clips, queue
from prefrl.store.engine import Database
from prefrl.store.metrics import events
from prefrl.store.runs import create_run
from prefrl.store.segments import add_segments
from prefrl.types import Segment


class Silent:
    """A view that nobody looks at."""

    def say(self, line: str) -> None:
        """Shows nothing."""


def test_a_run_that_is_resumed_tries_failed_clips_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    with Database.create(url) as db:
        run = create_run(db, "r", to_dict(RunConfig()), {})
        some = [Segment(np.full((5, 3), i, np.float32), np.zeros((5, 2)), np.zeros((5, 4))) for i in range(2)]
        ids = add_segments(db, run.id, some, None)
        queue.propose(db, run.id, [(ids[0], ids[1])])
        for id_ in clips.claim_clips(db, run.id, 9):
            clips.fail_clip(db, id_, "no GPU")

        def fail(*_: object) -> None:
            raise StoreError("no process in a unit test")

        monkeypatch.setattr(Supervisor, "_start", fail)
        for _ in range(2):  # the second time there is nothing to say
            with pytest.raises(StoreError, match="no process"):
                Supervisor(db, url, run, tmp_path / "logs", Silent()).supervise()
        assert clips.clip_counts(db, run.id) == {"pending": 0, "ready": 0, "failed": 0, "missing": 2}
        assert [e.message for e in events(db, run.id)] == ["2 clips that had failed are tried again"]


class Clock:
    """Time that passes when the test says so, and processes that end as soon as they start."""

    def __init__(self, page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
        self.page, self.now, self.starts = page, 1000.0, []
        monkeypatch.setattr(people.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(people.subprocess, "Popen", self.popen)

    def popen(self, *_: object, **__: object) -> Clock:
        self.starts.append(self.now)
        return self

    returncode = 2

    def poll(self) -> int:
        return self.returncode

    def look_for(self, seconds: float) -> list[str]:
        end, said = self.now + seconds, []
        while self.now < end:
            self.now += 0.5
            said += [words for words in [self.page.look()] if words]
        return said


def test_a_page_outlives_a_database_that_goes_away_for_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Page("sqlite:///x.db", "r", tmp_path, PageOptions())
    clock = Clock(page, monkeypatch)
    page.start()
    said = clock.look_for(PATIENCE_S)
    assert clock.starts, "it is still tried"
    assert page._process is not None
    assert len(said) == len(clock.starts) - 1 < MAX_DEATHS
    assert all("ended with exit code 2; started again" in words for words in said)
    waits = np.diff(clock.starts)
    assert min(waits) >= people.BACK_OFF_S
    (last,) = [words for words in clock.look_for(200) if "started again" not in words]
    assert "`prefrl label r` opens it once the cause is mended" in last
    assert clock.look_for(200) == []


def test_a_page_that_was_there_for_long_is_started_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("sqlite:///x.db", "r", tmp_path, PageOptions())
    clock = Clock(page, monkeypatch)
    page.start()
    for _ in range(3 * MAX_DEATHS):
        clock.now += people.CALM_AFTER_S + 1
        assert "started again" in page.look()


@pytest.mark.parametrize(("oracle", "hinted"), [("none", True), ("true-return", False)])
def test_resuming_without_the_page_names_the_command_that_opens_it(
    oracle: str, hinted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/people.db"
    with Database.create(url) as db:
        create_run(db, "r", to_dict(RunConfig(label=LabelConfig(oracle=oracle))), {})
    monkeypatch.setenv("PREFRL_DB", url)
    monkeypatch.setattr(create, "check_versions", lambda *_: [])
    monkeypatch.setattr(cli, "_start", lambda *_: 0)
    with pytest.raises(SystemExit) as ended:
        cli.main(["resume", "r", "--folder", str(tmp_path)])
    assert ended.value.code == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["prefrl: people answer this run, on the page that `prefrl label r` opens"] * hinted
