"""The catalogues: the same keys and places in every language, and every key that the app uses."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labeling_app.annotator import clean_name
from labeling_app.instructions import task_instructions
from labeling_app.session import Ack, Held
from labeling_app.states import PageState, Situation
from labeling_app.words import LANGUAGES, PARTS, ack_line, choose, load, state_words
from prefrl.store.runs import Run

APP = Path(__file__).parents[2] / "labeling_app"


def leaves(tree: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {"en"}))
def test_same_keys_and_places(language: str) -> None:
    english, other = dict(leaves(load("en").tree)), dict(leaves(load(language).tree))
    assert english.keys() == other.keys()
    for key, text in english.items():
        assert places(text) == places(other[key]), key
        assert bool(text) == bool(other[key]), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_game_has_the_papers_instructions_and_another_games_owner_writes_them(language: str) -> None:
    def asked(env_id: str) -> str:
        run = Run(1, "r", {"env": {"id": env_id}}, {}, "created", 0)
        return task_instructions(run, load(language))

    assert asked("ALE/Pong-v5") == asked("pong") != asked("enduro-alongside")
    assert asked("pong").strip("*")
    assert asked("ALE/Alien-v5") == ""


def test_korean_is_korean() -> None:
    without = {"page.title"} | {key for key, text in leaves(load("en").tree) if not text}
    for key, text in leaves(load("ko").tree):
        assert key in without or re.search("[가-힣]", text), key


def test_every_language_has_a_file_and_a_name() -> None:
    files = {path.name for path in (APP / "words").glob("*.toml")}
    wanted = {f"{part}{language}.toml" for part in PARTS for language in LANGUAGES}
    assert files == wanted | {f"tasks.{language}.toml" for language in LANGUAGES if language != "en"}
    with pytest.raises(KeyError):
        load("xx")


def test_the_browser_finds_all_its_words() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (APP / "labeler").glob("*.js"))
    used = set(re.findall(r"\b(?:words|w)\.(\w+)", source))
    used |= {"failed_gone", "failed_decode"}
    html = (APP / "labeler" / "labeler.html").read_text(encoding="utf-8")
    used |= set(re.findall(r'data-do="(\w+)"', html))
    assert used
    assert used <= load("en").table("labeler").keys()


def test_no_word_is_left_over() -> None:
    sources = [*APP.rglob("*.py"), *(APP / "labeler").glob("*")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources if path.is_file())
    by_name = (
        "state.",
        "ack.",
        "span.",
        "tasks.",
        "dashboard.",
        "comparisons.",
        "transfer.",
        "settings.",
    )  # many keys are joined
    for key, _ in leaves(load("en").tree):
        name = key.rpartition(".")[2]
        assert key.startswith(by_name) or re.search(rf"\b{name}\b", text), key


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_state_has_words(language: str) -> None:
    words = load(language)
    for state in PageState:
        found = state_words(words, Situation(state, 5000, 61_000, 7, "<b>why</b>", waits_for_you=True))
        assert not places(found["title"] + found["text"])
        assert bool(found["title"]) == bool(found["text"]) == (state is not PageState.READY)
        assert found["reason"] == "<b>why</b>"
        assert bool(found["notice"]) == (state is PageState.READY)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_outcome_has_words(language: str) -> None:
    words = load(language)
    for kind in ("left", "right", "tie", "incomparable", "skip", "undo"):
        outcome = {"skip": "skipped", "undo": "undone"}.get(kind, "saved")
        assert ack_line(words, Ack("i", kind, outcome), Held(done=37, budget=200))
    for outcome in ("late", "malformed", "unknown", "nothing_to_undo", "too_long_ago", "changed"):
        assert ack_line(words, Ack("i", "left", outcome), Held())


def test_lines() -> None:
    words = load("en")
    held = Held(done=37, budget=200)
    assert ack_line(words, Ack("i", "left", "saved"), held) == "Saved: left. 37 of 200"
    assert ack_line(words, Ack("i", "skip", "skipped"), held) == "Skipped. It comes back later."
    assert ack_line(words, Ack("i", "left", "saved"), Held(done=3)) == "Saved: left."
    assert ack_line(load("ko"), Ack("i", "left", "saved"), held) == "저장됨: 왼쪽. 200개 중 37개"
    assert [words.span(ms) for ms in (0, 1500, 119_000, 120_000, 7_000_000, 8_000_000, 200_000_000)] == [
        "1 s",
        "2 s",
        "119 s",
        "2 min",
        "117 min",
        "2 h",
        "2 days",
    ]


def test_choice_of_language() -> None:
    assert choose(None, "ko-KR") == choose("ko", "en-US") == choose(None, "ko") == choose("xx", "ko_KR") == "ko"
    assert choose(None, "de-DE") == choose(None, None) == choose("../ko", "fr") == choose("en", "ko") == "en"


@pytest.mark.parametrize("name", ["ann", "Oracle B.", "김민준", "a_b-c@d.e", "José", "x" * 100, "o'neil+a@b.c"])
def test_names(name: str) -> None:
    assert clean_name(f"  {name} ") == name


@pytest.mark.parametrize(
    "name", [None, "", "   ", "x" * 101, "a/b", "<b>", "oracle:true", "Oracle", "import", "import:x", "a\x00b"]
)
def test_names_that_cannot_be(name: str | None) -> None:
    assert clean_name(name) is None
