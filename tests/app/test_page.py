"""The page as Streamlit runs it, without a browser: states, the outbox, and what must stay hidden."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from labeling_app import clips, source
from prefrl.store import runs
from prefrl.store.engine import Database

pytest.importorskip("streamlit")
APP = str(Path(__file__).parents[2] / "labeling_app" / "app.py")
TAB = "0123456789abcdef"
HIDDEN = (
    "policy",
    "reward",
    "purpose",
    "version",
    "score",
    "env_steps",
    "4321",
    "0.123456",
    "77",
    "segment",
    "shown_left",
)


@pytest.fixture
def db(sqlite_url: str) -> Iterator[Database]:
    with Database.create(sqlite_url) as database:
        yield database


@pytest.fixture
def page(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv(source.DB_VARIABLE, sqlite_url)
    monkeypatch.setenv(source.RUN_VARIABLE, "cheetah")
    monkeypatch.setattr(clips, "_routed", True)

    def make(name: str | None = "ann", lang: str | None = None) -> Any:
        at = AppTest.from_file(APP, default_timeout=30)
        send(at, [])
        if name:
            at.query_params["name"] = name
        if lang:
            at.query_params["lang"] = lang
        return at

    yield make
    if sqlite_url in source._open:
        source._open.pop(sqlite_url).close()


def send(at: Any, entries: list[Any], tab: str = TAB) -> None:
    """What the browser does; no callback of a component is run here."""
    at.session_state["labeler"] = {"outbox": {"tab": tab, "entries": entries}}


def shown(at: Any) -> dict[str, Any]:
    """What the component was given."""
    assert not at.exception, at.exception
    (component,) = at.get("bidi_component")
    return json.loads(component.proto.json)


def test_a_name_comes_first(page: Callable[..., Any], desk) -> None:
    desk.propose(1)
    at = page(None).run()
    assert not at.get("bidi_component")
    at.text_input[0].set_value("oracle:mine")
    at.button[0].click().run()
    assert len(at.error) == 1
    at.text_input[0].set_value("  ann ")
    at.button[0].click().run()
    assert at.query_params["name"] in ("ann", ["ann"])
    assert len(shown(at)["pairs"]) == 1
    assert [row.annotator for row in desk.rows()] == []


def test_instructions(page: Callable[..., Any], desk) -> None:
    assert "cheetah moves further to the right" in page().run().markdown[0].value
    assert page(lang="ko").run().markdown[0].value.startswith("**치타가 오른쪽으로")
    runs.update_config(desk.db, desk.run.id, {"label": {"budget": 5, "instructions": "Prefer *height*."}})
    assert page().run().markdown[0].value.startswith("Prefer *height*.")


def test_an_outbox_is_stored_and_acknowledged(page: Callable[..., Any], desk, entry) -> None:
    made = desk.propose(6)
    at = page().run()
    data = shown(at)
    assert [pair["query_id"] for pair in data["pairs"]] == made[:3]
    assert (data["done"], data["budget"], data["acks"]) == (0, 200, [])
    first, second, _ = desk.labeler().refill().pairs
    sent = [entry(first, "left", run=data["run"]), entry(second, "skip", run=data["run"]), {"id": "not-an-entry"}]
    send(at, sent)
    data = shown(at.run())
    assert [(ack["id"], ack["stored"], ack["line"]) for ack in data["acks"]] == [
        (sent[0]["id"], True, "Saved: left. 1 of 200"),
        (sent[1]["id"], True, "Skipped. It comes back later."),
        ("not-an-entry", False, "An answer could not be read and was dropped."),
    ]
    assert [pair["query_id"] for pair in data["pairs"]] == [made[2], made[3], made[4]]
    assert [one["id"] for one in data["past"]] == [sent[0]["id"]]
    again = shown(at.run())  # the browser has not heard yet
    assert [ack["stored"] for ack in again["acks"]] == [True, True, False]
    assert again["pass"] > data["pass"]
    assert len(desk.rows()) == 1


def test_pairs_come_when_the_tab_has_said_its_name(page: Callable[..., Any], desk, entry) -> None:
    made = desk.propose(6)
    at = page()
    send(at, [], tab="")
    data = shown(at.run())
    assert (data["pairs"], data["state"]["name"]) == (None, "ready")
    assert desk.counts()["leased"] == 0, "nothing is held for a tab that is nobody's"
    send(at, [])
    assert [pair["query_id"] for pair in shown(at.run())["pairs"]] == made[:3]
    again, other = page(), page()
    assert shown(again.run())["pairs"] == shown(at.run())["pairs"], "the same tab, loaded anew"
    send(other, [], tab="fedcba9876543210")
    assert [pair["query_id"] for pair in shown(other.run())["pairs"]] == made[3:]
    (held, *_) = desk.labeler().refill().pairs
    send(other, [entry(held, "left")], tab="fedcba9876543210'; DROP TABLE lease")  # no name, but an answer all the same
    assert [ack["stored"] for ack in shown(other.run())["acks"]] == [True]
    assert len(desk.rows()) == 1


def test_a_pass_looks_the_run_up_once(page: Callable[..., Any], desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.propose(3)
    looks, real = [], source.list_runs
    monkeypatch.setattr(source, "list_runs", lambda db: looks.append(db) or real(db))
    at = page().run()
    assert (len(shown(at)["pairs"]), len(looks)) == (3, 1)
    shown(at.run())
    assert len(looks) == 2


def test_undo_through_the_page(page: Callable[..., Any], desk, entry) -> None:
    desk.propose(3)
    at = page().run()
    first = desk.labeler().refill().pairs[0]
    answer = entry(first, "left")
    undo = entry(first, "undo", target=answer["id"], id=f"{TAB}-an-undo")
    send(at, [answer, undo])
    data = shown(at.run())
    assert [ack["line"] for ack in data["acks"]] == ["Saved: left. 0 of 200", "Taken back. 0 of 200"]
    assert data["pairs"][0]["replaces"] == undo["id"]
    assert data["pairs"][0]["left"] == f"clips/{first.token}/left"


def test_nothing_hidden_leaks(page: Callable[..., Any], desk, entry) -> None:
    desk.propose(4)
    at = page().run()
    first = desk.labeler().refill().pairs[0]
    send(at, [entry(first, "left")])
    data = shown(at.run())
    assert set(data) == {"run", "who", "pairs", "past", "acks", "done", "budget", "state", "words", "keys", "pass"}
    for pair in data["pairs"]:
        assert set(pair) == {"token", "query_id", "replaces", "left", "right"}
    data.pop("words")
    text = json.dumps([data["pairs"], data["past"], data["acks"], data["state"], sorted(data)])
    for token in {pair["token"] for pair in data["pairs"]} | {first.token}:
        text = text.replace(token, "")
    assert [word for word in HIDDEN if word in text] == []
    whole = at.get("bidi_component")[0].proto.json
    assert "cheetah" not in whole
    assert "ann" not in {data["run"], data["who"]}


def test_states(page: Callable[..., Any], desk, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(page().run())["state"]["name"] == "no_trainer"
    korean = shown(page(lang="ko").run())
    assert korean["state"]["title"] == "비교할 쌍이 없고 학습도 멈춰 있습니다"
    monkeypatch.setenv(source.RUN_VARIABLE, "not-there")
    data = shown(page().run())
    assert (data["state"]["name"], data["pairs"]) == ("no_run", None)
    monkeypatch.setenv(source.DB_VARIABLE, f"{sqlite_url}.other")
    assert shown(page().run())["state"]["name"] == "no_run"
    Path(sqlite_url.removeprefix("sqlite:///") + ".other").write_text(
        "no database at all, but long enough to be looked at"
    )
    data = shown(page().run())
    assert (data["state"]["name"], data["pairs"], data["acks"]) == ("unreachable", None, [])
    monkeypatch.delenv(source.DB_VARIABLE)
    assert shown(page().run())["state"]["name"] == "unreachable"


def test_a_database_that_goes_away(page: Callable[..., Any], desk, entry, sqlite_url: str) -> None:
    desk.propose(3)
    at = page().run()
    first = desk.labeler().refill().pairs[0]
    source.database(sqlite_url).close()
    send(at, [entry(first, "left")])
    data = shown(at.run())
    assert (data["state"]["name"], data["acks"]) == ("unreachable", [])
    assert data["pairs"] is None  # the browser keeps what it shows
    source._open.clear()
    assert [ack["stored"] for ack in shown(at.run())["acks"]] == [True]


def test_text_of_the_database_is_no_markup(page: Callable[..., Any], desk) -> None:
    from prefrl.store import clips as store
    from prefrl.store import queue

    queue.propose(desk.db, desk.run.id, [(desk.ids[0], desk.ids[1])])
    for id_ in store.claim_clips(desk.db, desk.run.id, 9):
        store.fail_clip(desk.db, id_, "<img src=x onerror=alert(1)>")
    at = page().run()
    assert shown(at)["state"]["reason"] == "<img src=x onerror=alert(1)>"
    assert all("<img" not in block.value for block in at.markdown)
    scripts = "".join(path.read_text() for path in (Path(APP).parent / "labeler").glob("*.js"))
    assert "innerHTML" not in scripts
    assert "insertAdjacentHTML" not in scripts


def test_language_and_name_can_be_changed(page: Callable[..., Any], desk) -> None:
    at = page().run()
    at.selectbox[0].set_value("ko").run()
    assert at.query_params["lang"] in ("ko", ["ko"])
    assert "더 좋은 일이" in at.run().markdown[0].value
    at.button[-1].click().run()
    assert "name" not in at.query_params
