"""Settings: the run's for who may, one's own for everybody; and what they change on the other pages."""

from __future__ import annotations

from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from labeling_app.rules import rules_of
from labeling_app.serve import ACCESS_VARIABLE, CODE_VARIABLE, USER_VARIABLE
from labeling_app.session import Labeler
from labeling_app.words import load
from prefrl.settings import from_dict
from prefrl.store.comparisons import supersede, tail
from prefrl.store.engine import Database
from prefrl.store.gold import gold_questions
from prefrl.store.runs import get_run, update_label
from prefrl.store.schema import run as run_table
from prefrl.types import Preference
from tests.app.pages.made import NAME, fine, full, initial, say, show, texts

words = load("en")
pytestmark = pytest.mark.usefixtures("where")


def settings(**address: str) -> AppTest:
    def script() -> None:
        from labeling_app import owner

        owner.settings_page()

    at = AppTest.from_function(script, default_timeout=60)
    for name, value in address.items():
        at.query_params[name] = value
    return fine(at.run())


def app(**address: str) -> AppTest:
    """The Label page behind the frame's gate."""

    def script() -> None:
        from labeling_app.label_page import label_page
        from labeling_app.personal import page_words
        from labeling_app.rights import may_enter

        if may_enter(page_words()):
            label_page()

    at = AppTest.from_function(script, default_timeout=60)
    for name, value in address.items():
        at.query_params[name] = value
    return fine(at.run())


def save(at: AppTest) -> AppTest:
    (button,) = [one for one in at.button if one.label == words("settings.save")]
    return fine(button.click().run())


def field(at: AppTest, name: str) -> Any:
    """The one field of a setting that is on the page."""
    (found,) = [one for one in (*at.text_area, *at.number_input) if str(one.key).startswith(f"settings-{name}-")]
    return found


def test_the_owner_settles_the_run(db: Database) -> None:
    run = initial(db)
    before = run.config
    at = settings()
    field(at, "instructions").set_value(" Prefer the *higher* one. ")
    field(at, "overlap").set_value(2)
    field(at, "repeat_share").set_value(5)
    field(at, "gold_share").set_value(10)
    field(at, "prefetch").set_value(4)
    save(at)
    assert words("settings.saved") in texts(at)
    assert "Prefer the *higher* one." in texts(at)
    after = get_run(db, NAME)
    changed = {"instructions": "Prefer the *higher* one.", "overlap": 2, "repeat_share": 0.05, "gold_share": 0.1}
    assert after.config == {**before, "label": {**before["label"], **changed, "prefetch": 4}}
    assert from_dict(after.config).label.overlap == 2  # and it is a configuration that a trainer can read
    assert field(settings(), "repeat_share").value == 5


def test_who_may_not_sees_them_and_changes_nothing(db: Database, where: pytest.MonkeyPatch) -> None:
    run = initial(db)
    where.setattr(st, "get_option", lambda _: "0.0.0.0")
    at = settings()
    assert words("settings.not_allowed") in texts(at)
    (button,) = [one for one in at.button if one.label == words("settings.save")]
    fields = [at.text_area[0], *at.number_input, button]
    assert all(one.disabled for one in fields)
    where.setenv(CODE_VARIABLE, "sesame")
    at = settings()
    (code,) = [one for one in at.text_input if one.proto.type]
    code.set_value("sesame")
    fine(at.button[0].click().run())
    field(at, "overlap").set_value(5)
    where.setenv(CODE_VARIABLE, "changed since")  # at the click it is asked for again
    save(at)
    assert get_run(db, NAME).config == run.config


def test_language_and_keys_are_kept_in_the_address(db: Database) -> None:
    initial(db)
    at = settings(name="ann")
    at.radio[0].set_value("letters")
    fine(at.run())
    assert at.query_params["keys"] in ("letters", ["letters"])
    at.selectbox[0].set_value("ko")
    fine(at.run())
    assert at.title[0].value == load("ko")("settings.title")


def test_a_run_of_an_older_prefrl_has_the_usual_rules(db: Database) -> None:
    run = initial(db)
    label = {name: value for name, value in run.config["label"].items() if name in ("budget", "oracle")}
    with db.write() as connection:
        connection.execute(run_table.update().values(config={**run.config, "label": {**label, "newer": 1}}))
    rules = rules_of(get_run(db, NAME))
    assert (rules.budget, rules.overlap, rules.repeat_share, rules.prefetch) == (40, 1, 0.0, 3)
    assert field(settings(), "prefetch").value == 3


def test_the_next_pair_follows_the_settings(db: Database) -> None:
    run = full(db)
    assert len(Labeler(db, run, "zoe").refill().pairs) <= 3
    update_label(db, run.id, {"prefetch": 1})
    assert len(Labeler(db, get_run(db, NAME), "zoe").refill().pairs) <= 1


def test_an_answer_becomes_a_gold_question_and_none_again(db: Database) -> None:
    run = full(db)
    (row,) = [one for one in tail(db, run.id) if one.seq == 3]
    at = show("comparisons", db.url, annotator="boss")
    fine(at.selectbox(key="comparisons-open").set_value(3).run())
    fine(at.button(key="comparisons-gold").click().run())
    (known,) = gold_questions(db, run.id)
    assert ((known.segment_1, known.segment_2), known.mu) == (row.pair, row.mu)
    assert say("comparisons.marked_gold", n=3) in texts(at)
    assert words("settings.gold_share_means", n=1) in texts(settings())
    tie = supersede(db, run.id, 3, Preference.TIE, "boss", "corrected")  # the right answer was wrong
    fine(at.run())
    fine(at.selectbox(key="comparisons-open").set_value(tie.seq).run())
    fine(at.button(key="comparisons-gold").click().run())
    assert [known.mu for known in gold_questions(db, run.id)] == [0.5]
    fine(at.selectbox(key="comparisons-open").set_value(tie.seq).run())
    fine(at.button(key="comparisons-no-gold").click().run())
    assert gold_questions(db, run.id) == []


def test_two_owners_change_different_things(db: Database) -> None:
    """And what a page cannot show to the digit, it leaves alone."""
    run = initial(db)
    update_label(db, run.id, {"repeat_share": 0.125})
    one, two = settings(), settings()
    field(one, "instructions").set_value("Higher.")
    save(one)
    field(two, "overlap").set_value(3)
    save(two)
    rules = rules_of(get_run(db, NAME))
    assert (rules.instructions, rules.overlap, rules.repeat_share) == ("Higher.", 3, 0.125)


def test_what_was_seen_when_the_page_was_opened_decides_what_was_changed(db: Database) -> None:
    def script() -> None:
        import streamlit as st

        from labeling_app import owner

        if not st.session_state.get("elsewhere"):
            owner.settings_page()

    run = initial(db)
    at = fine(AppTest.from_function(script, default_timeout=60).run())
    update_label(db, run.id, {"overlap": 3})
    for elsewhere in (True, False):
        at.session_state["elsewhere"] = elsewhere
        fine(at.run())
    assert field(at, "overlap").value == 3
    field(at, "overlap").set_value(1)
    save(at)
    assert rules_of(get_run(db, NAME)).overlap == 1
    update_label(db, run.id, {"overlap": 5})
    field(at, "instructions").set_value("Higher.")
    save(at)
    rules = rules_of(get_run(db, NAME))
    assert (rules.overlap, rules.instructions) == (5, "Higher."), "what another owner changed meanwhile stays"
    assert field(at, "overlap").value == 5, "and is on the page after the save"
    field(at, "overlap").set_value(1)
    save(at)
    assert rules_of(get_run(db, NAME)).overlap == 1


def test_behind_a_proxy_that_says_no_name_answers_cannot_be_changed(db: Database, where: pytest.MonkeyPatch) -> None:
    def script() -> None:
        from labeling_app import owner

        owner.comparisons_page()

    full(db)
    where.setenv(USER_VARIABLE, "X-User")
    where.setattr("labeling_app.owner.may_change", lambda _: True)  # who has typed the owner's code
    for given, may in (({}, False), ({"X-User": ["boss"]}, True)):
        where.setattr(Headers, "headers", Given(given))
        where.setattr(st, "context", Headers())
        at = fine(AppTest.from_function(script, default_timeout=60).run())
        assert (say("comparisons.not_allowed") not in texts(at)) == may


def test_nobody_comes_in_without_the_access_code(db: Database, where: pytest.MonkeyPatch) -> None:
    initial(db)
    where.setenv(ACCESS_VARIABLE, "öpen")
    at = app(name="ann")
    assert not at.get("bidi_component")
    for wrong in ("", "open", "öpen "):
        (field,) = at.text_input
        field.set_value(wrong)
        fine(at.button[0].click().run())
        assert words("access.wrong") in texts(at)
        assert not at.get("bidi_component")
    at.text_input[0].set_value("öpen")
    fine(at.button[0].click().run())
    assert len(at.get("bidi_component")) == 1
    where.setenv(ACCESS_VARIABLE, "another")
    fine(at.run())
    assert not at.get("bidi_component")


class Given(dict[str, list[str]]):
    def get_all(self, name: str) -> list[str]:
        return self.get(name, [])


class Headers:
    locale, headers = "en", Given({"X-User": ["김민준"]})


def test_the_name_that_a_proxy_gives_is_noted_as_such(db: Database, where: pytest.MonkeyPatch) -> None:
    initial(db)
    where.setenv(USER_VARIABLE, "X-User")
    where.setattr(st, "context", Headers())
    at = app(name="mallory")  # what the address says counts no more
    assert words("page.signed", name="김민준") in texts(at)
    assert words("page.change_name") not in [one.label for one in at.button]
    for forged in ({}, {"X-User": ["mallory", "김민준"]}):
        where.setattr(Headers, "headers", Given(forged))
        at = app(name="mallory")
        assert words("page.nameless") in texts(at)
        assert not at.get("bidi_component")


@pytest.mark.parametrize("variable", [ACCESS_VARIABLE, USER_VARIABLE])
def test_behind_a_proxy_or_a_code_nobody_is_the_owner_by_himself(
    db: Database, where: pytest.MonkeyPatch, variable: str
) -> None:
    initial(db)
    assert words("settings.not_allowed") not in texts(settings())
    where.setenv(variable, "X-User")
    assert words("settings.not_allowed") in texts(settings())
