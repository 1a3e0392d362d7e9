"""A folder of clips on every page: the same pairs and keys, and not a word about training."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("streamlit")
pytest.importorskip("av")

from labeling_app import clips, source, states
from labeling_app.session import Labeler
from labeling_app.states import PageState, situation
from labeling_app.words import load
from prefrl.run.folder import open_folder
from prefrl.store import queue
from prefrl.store.again import Mix, ask_again
from prefrl.store.engine import Database
from prefrl.store.runs import Run
from prefrl.types import Answer, Preference
from tests.app.pages.made import texts
from tests.clip_files import fill, video

APP = str(Path(__file__).parents[2] / "labeling_app" / "app.py")
TRAINING = {"en": r"\btrain|\bagent|\breward|\bpolicy|\bschedule", "ko": "학습|에이전트|보상|정책|일정"}
FREE = {"en": "nothing is trained", "ko": "아무것도 학습하지 않습니다"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cats = fill(tmp_path / "cats", 2, "cat")
    (cats / "_bold_ $x$.webm").write_bytes(video(77, "libvpx-vp9", "webm"))
    return cats


@pytest.fixture
def run(sqlite_url: str, folder: Path) -> Run:
    return open_folder(sqlite_url, folder)


@pytest.fixture
def db(sqlite_url: str, run: Run) -> Iterator[Database]:
    with Database.open(sqlite_url) as database:
        yield database


@pytest.fixture
def page(sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv(source.DB_VARIABLE, sqlite_url)
    monkeypatch.setenv(source.RUN_VARIABLE, run.name)
    monkeypatch.setattr(clips, "_routed", True)

    def make(name: str, lang: str) -> Any:
        at = AppTest.from_file(APP, default_timeout=60)
        at.session_state["labeler"] = {"outbox": {"tab": "0123456789abcdef", "entries": []}}
        at.query_params["name"], at.query_params["lang"] = "ann", lang
        at.run()
        if name != "label":
            owner = {"dashboard": "dashboard_page", "comparisons": "comparisons_page", "transfer": "transfer_page"}
            script = f"from labeling_app import owner\nowner.{owner[name]}()"
            at = AppTest.from_string(script, default_timeout=60)
            at.query_params["name"], at.query_params["lang"] = "ann", lang
            at.run()
        assert not at.exception, [one.value for one in at.exception]
        return at

    yield make
    if sqlite_url in source._open:
        source._open.pop(sqlite_url).close()


def answer(db: Database, run: Run, n: int, who: str = "ann", said: Preference = Preference.LEFT) -> None:
    for one in queue.lease(db, run.id, who, n=n, clips=True):
        queue.answer(db, [Answer(one.query_id, one.token, said, who, f"{one.token}-uuid", 900)])


def now(db: Database, run: Run, who: str = "ann") -> states.Situation:
    return situation(db, run, who, Labeler(db, run, who).refill())


def shown(at: Any) -> dict[str, Any]:
    (component,) = at.get("bidi_component")
    found: dict[str, Any] = json.loads(component.proto.json)
    return found


def test_states_from_the_first_pair_to_the_last(db: Database, run: Run) -> None:
    assert now(db, run).state is PageState.READY
    assert now(db, run, "bea").state is PageState.LEASED_BY_OTHERS
    answer(db, run, 0)
    held = Labeler(db, run, "ann").refill()
    for pair in held.pairs:
        queue.answer(db, [Answer(pair.query_id, pair.token, Preference.LEFT, "ann", pair.token, 900)])
    assert (now(db, run).state, now(db, run).n) == (PageState.BUDGET_REACHED, 3)


@pytest.mark.parametrize("who", ["ann", "bea"])
def test_where_all_is_answered_without_the_budget_nobody_waits_for_training(db: Database, run: Run, who: str) -> None:
    answer(db, run, 3, "ann", Preference.INCOMPARABLE)
    assert now(db, run, who) == states.Situation(PageState.ALL_COMPARED)


def test_pairs_that_were_asked_of_somebody_again_are_not_compared_yet(db: Database, run: Run) -> None:
    answer(db, run, 2, "ann")
    (_,) = ask_again(db, run.id, "bea", Mix(overlap=2))  # in the place of the third
    assert now(db, run, "ann") == states.Situation(PageState.ASKED_OF_OTHERS, n=1)


def test_pairs_that_were_skipped_come_back(db: Database, run: Run) -> None:
    answer(db, run, 2, "ann", Preference.INCOMPARABLE)
    (one,) = queue.lease(db, run.id, "ann", clips=True)
    queue.skip(db, one.token, "ann")
    found = now(db, run)
    assert (found.state, found.n) == (PageState.ALL_SKIPPED, 1)


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_the_label_page_says_nothing_about_training(
    page: Callable[..., Any], db: Database, run: Run, lang: str
) -> None:
    at = page("label", lang)
    data = shown(at)
    assert (len(data["pairs"]), data["done"], data["budget"]) == (3, 0, 3)
    assert "cat" not in json.dumps(data["pairs"])  # a name may tell which one should win
    assert not re.search(TRAINING[lang], texts(at), re.IGNORECASE)
    for pair in Labeler(db, run, "ann").refill().pairs:
        said = Answer(pair.query_id, pair.token, Preference.INCOMPARABLE, "ann", pair.token, 900)
        queue.answer(db, [said])
    data = shown(page("label", lang))
    assert data["pairs"] == []
    assert data["state"]["name"] == "all_compared"
    assert data["state"]["title"] == load(lang)("state.all_compared.title")
    assert not re.search(TRAINING[lang], json.dumps(data["state"], ensure_ascii=False), re.IGNORECASE)


@pytest.mark.parametrize("lang", ["en", "ko"])
@pytest.mark.parametrize("n", [0, 3])
def test_the_dashboard_ranks_the_clips(page: Callable[..., Any], db: Database, run: Run, lang: str, n: int) -> None:
    answer(db, run, n)
    at = page("dashboard", lang)
    words = load(lang)
    said = texts(at)
    assert words("dashboard.clips_run") in said
    assert not re.search(TRAINING[lang], said.replace(FREE[lang], ""), re.IGNORECASE), said
    tables = [list(frame.value.columns) for frame in at.dataframe]
    ranked = [frame.value for frame in at.dataframe if words("dashboard.clip") in frame.value.columns]
    assert len(ranked) == (n > 0), tables
    if n:
        names = set(ranked[0][words("dashboard.clip")])
        assert names == {"_bold_ $x$.webm", "cat-00.mp4", "cat-01.mp4"}
        assert f"{n} / 3" in {metric.value for metric in at.metric}
        assert not any(words("dashboard.model") in columns for columns in tables)


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_comparisons_name_the_files_and_transfer_only_exports(
    page: Callable[..., Any], db: Database, run: Run, lang: str
) -> None:
    answer(db, run, 3)
    at = page("comparisons", lang)
    words = load(lang)
    named = {text.value for text in at.text}
    assert len(named & {"_bold_ $x$.webm", "cat-00.mp4", "cat-01.mp4"}) == 2
    at = page("transfer", lang)
    assert words("transfer.clips_run") in {info.value for info in at.info}
    assert words("transfer.clips_export_means") in {caption.value for caption in at.caption}
    assert not at.get("file_uploader")
    at.radio(key="transfer-format").set_value(".csv").run()
    at.button(key="transfer-prepare").click().run()
    assert not at.exception
    data = at.session_state["transfer-export"][2]
    assert data.decode("utf-8-sig").startswith("seq,uuid,annotator,preference,left,right,preferred,")


def test_each_clip_is_sent_as_what_it_is(
    page: Callable[..., Any], db: Database, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Labeler(db, run, "ann").refill()
    kinds = set()
    for pair in held.pairs:
        for side in clips.SIDES:
            monkeypatch.setattr(clips, "_routed", False)
            kinds.add(clips.clip_url(db, pair.token, side).partition(";")[0])
    assert kinds == {"data:video/mp4", "data:video/webm"}
    assert clips._part(video(77, "libvpx-vp9", "webm"), None).media_type == "video/webm"
    assert clips._part(video(77, "libvpx-vp9", "webm"), "bytes=0-9").media_type == "video/webm"
    assert clips._part(video(0), "bytes=0-9").media_type == "video/mp4"
