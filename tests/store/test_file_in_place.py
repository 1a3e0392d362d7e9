"""An SQLite file that loses its name while a handle is open on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from prefrl.errors import StoreError
from prefrl.store import runs
from prefrl.store.engine import Database


def test_a_moved_file_is_refused_and_used_again_once_it_is_back(tmp_path: Path) -> None:
    path, aside = tmp_path / "runs.db", tmp_path / "aside.db"
    with Database.create(f"sqlite:///{path}") as db:
        run = runs.create_run(db, "hopper", {}, {})
        path.rename(aside)
        with pytest.raises(StoreError, match=r"runs\.db.*moved while in use.*move it back"):
            runs.set_run_state(db, run.id, "done")
        with pytest.raises(StoreError, match="moved while in use"):
            runs.get_run(db, "hopper")
        aside.rename(path)
        runs.set_run_state(db, run.id, "stopped")
    with Database.open(f"sqlite:///{path}", readonly=True) as db:
        assert runs.get_run(db, "hopper").state == "stopped"


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    with Database.create(f"sqlite:///{path}") as db:
        run = runs.create_run(db, "hopper", {}, {})
        shutil.copy(path, copy)
        copy.replace(path)
        with pytest.raises(StoreError, match="another file was put in its place"):
            runs.set_run_state(db, run.id, "done")
