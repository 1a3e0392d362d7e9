"""Import and export in the browser: round trips, a check before anything is stored, and names that are only names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from labeling_app.transfer import download_name, exported, safe_name
from prefrl.errors import DataError
from prefrl.store.comparisons import active, tail
from prefrl.store.engine import Database
from tests.app.pages import made
from tests.app.pages.made import HOSTILE, NAME, fine, full, initial, make_run, show, texts

STATES = {"nothing": make_run, "initial": initial, "full": full}


def say(key: str, **values: object) -> str:
    return made.say(f"transfer.{key}", **values)


def upload(at: AppTest, name: str, content: bytes) -> AppTest:
    return fine(at.file_uploader[0].set_value((name, content, "application/octet-stream")).run())


def click(at: AppTest, key: str) -> AppTest:
    return fine(at.button(key=f"transfer-{key}").click().run())


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("state", list(STATES))
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_every_state_can_be_exported_and_nothing_is_written(
    db: Database, url: str, content: Callable[[], str], state: str, readonly: bool, language: str, suffix: str
) -> None:
    run = STATES[state](db)
    before = content()
    at = show("transfer", url, readonly=readonly, language=language)
    fine(at.radio(key="transfer-format").set_value(suffix).run())
    click(at, "prepare")
    assert len(at.get("download_button")) == 1
    assert content() == before
    data = at.session_state["transfer-export"][2]
    if suffix == ".csv":
        lines = list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))
        assert len(lines) == 1 + len(tail(db, run.id))
    elif suffix == ".jsonl":
        assert len(data.splitlines()) == len(active(tail(db, run.id)))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_what_was_exported_can_be_imported_after_a_check(
    db: Database, url: str, content: Callable[[], str], tmp_path: Path, suffix: str
) -> None:
    full(db)
    data = exported(db, NAME, suffix)
    other = f"sqlite:///{tmp_path}/other.db"
    with Database.create(other) as target:
        run = make_run(target)
        at = upload(show("transfer", other), f"Answers{suffix.upper()}", data)
        assert say("check_first") in texts(at)
        assert [b.key for b in at.button] == ["transfer-prepare", "transfer-check"]
        click(at, "check")
        assert say("valid", n=21) in texts(at)
        assert tail(target, run.id) == []
        click(at, "store")
        assert say("added", n=21, known=0) in texts(at)
        assert len(tail(target, run.id)) == 21
        assert {c.annotator for c in tail(target, run.id)} == {"ann", HOSTILE}
        click(at, "check")
        click(at, "store")
        assert say("added", n=0, known=21) in texts(at)
        assert len(tail(target, run.id)) == 21


def test_faulty_rows_are_named_by_number_and_nothing_is_stored(
    db: Database, url: str, content: Callable[[], str]
) -> None:
    full(db)
    lines = exported(db, NAME, ".jsonl").splitlines()
    bad = json.loads(lines[1]) | {"preference": "<b>best</b>"}
    lines[1:3] = [json.dumps(bad).encode(), b"{"]
    before = content()
    at = click(upload(show("transfer", url), "my answers.jsonl", b"\n".join(lines)), "check")
    assert [e.value for e in at.error] == [say("problem")]
    (text,) = [t.value for t in at.text]
    assert text.startswith("my answers.jsonl: 2 rows are not valid")
    assert "row 2: preference is '<b>best</b>'" in text
    assert "row 3: is not valid JSON" in text
    assert "prefrl-import" not in text
    assert [b.key for b in at.button] == ["transfer-prepare", "transfer-check"]
    assert content() == before


def test_another_file_must_be_checked_anew(db: Database, url: str) -> None:
    full(db)
    data = exported(db, NAME, ".jsonl")
    at = click(upload(show("transfer", url), "a.jsonl", data), "check")
    assert say("valid", n=21) in texts(at)
    upload(at, "a.jsonl", data + data.splitlines()[0] + b"\n")
    assert say("check_first") in texts(at)
    assert [b.key for b in at.button] == ["transfer-prepare", "transfer-check"]


def test_who_may_not_import_gets_no_button(db: Database, url: str) -> None:
    full(db)
    for readonly, editable, word in ((True, True, "read_only"), (False, False, "not_allowed")):
        at = show("transfer", url, readonly=readonly, editable=editable)
        assert say(word) in texts(at)
        assert not at.file_uploader


BAD = (
    "/etc/passwd",
    "../a.jsonl",
    "a/../b.jsonl",
    "..\\a.jsonl",
    "C:\\a.jsonl",
    "C:a.jsonl",
    "\\\\host\\s\\a.jsonl",
    "",
    ".",
    "a\0.jsonl",
    "a\n.jsonl",
)


@pytest.mark.parametrize("name", BAD)
def test_paths_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="absolute paths and"):
        safe_name(name)


def test_names_are_only_names() -> None:
    assert safe_name("a.jsonl") == "a.jsonl"
    assert safe_name("folder/a b.parquet") == "a b.parquet"
    assert safe_name("folder\\a.jsonl") == "a.jsonl"
    assert safe_name("..a.jsonl") == "..a.jsonl"
    assert download_name("../../etc/한글 run", ".csv") == "etc-한글-run-comparisons.csv"
    assert download_name("//", ".csv") == "run-comparisons.csv"


def test_a_path_as_a_name_is_refused_on_the_page(db: Database, url: str, content: Callable[[], str]) -> None:
    full(db)
    before = content()
    at = upload(show("transfer", url), "../../evil.jsonl", b"{}")
    assert [e.value for e in at.error] == [say("bad_name")]
    assert [b.key for b in at.button] == ["transfer-prepare"]
    assert content() == before


def test_a_file_without_comparisons_is_told(db: Database, url: str) -> None:
    full(db)
    at = click(upload(show("transfer", url), "a.jsonl", b"\n"), "check")
    assert say("none") in texts(at)
    assert [b.key for b in at.button] == ["transfer-prepare", "transfer-check"]
