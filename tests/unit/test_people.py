"""What a supervised run with people does beside its roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefrl.config import RunConfig, to_dict
from prefrl.errors import StoreError
from prefrl.run.supervisor import Supervisor
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
