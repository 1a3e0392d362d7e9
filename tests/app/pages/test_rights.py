"""Who may change answers and import: everybody at this machine, else who knows the owner's code."""

from __future__ import annotations

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from labeling_app.serve import CODE_VARIABLE
from labeling_app.words import load
from prefrl.store.comparisons import tail
from prefrl.store.engine import Database
from prefrl.types import Preference
from tests.app.pages.made import fine, initial, say, texts

CODE = "öpen sesame"


def comparisons() -> AppTest:
    def script() -> None:
        from labeling_app import owner

        owner.comparisons_page()

    at = AppTest.from_function(script, default_timeout=60)
    at.query_params["name"] = "boss"
    return fine(at.run())


def transfer() -> AppTest:
    def script() -> None:
        from labeling_app import owner

        owner.transfer_page()

    return fine(AppTest.from_function(script, default_timeout=60).run())


def enter(at: AppTest, code: str) -> AppTest:
    (field,) = [one for one in at.text_input if one.proto.type]  # it is a password
    field.set_value(code)
    return fine(at.button[0].click().run())


def test_who_reaches_the_page_from_elsewhere_may_only_look(db: Database, where: pytest.MonkeyPatch) -> None:
    initial(db)
    for address in ("0.0.0.0", "", None, "example.org", "192.0.2.1"):  # none at all: Streamlit listens on all
        where.setattr(st, "get_option", lambda _, address=address: address)
        assert say("comparisons.not_allowed") in texts(comparisons())
    at = transfer()
    assert say("transfer.not_allowed") in texts(at)
    assert not at.file_uploader
    for address in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        where.setattr(st, "get_option", lambda _, address=address: address)
        assert comparisons().button(key="comparisons-save")
    assert transfer().file_uploader


def test_the_code_is_asked_for_and_looked_at_in_every_pass(db: Database, where: pytest.MonkeyPatch) -> None:
    where.setattr(st, "get_option", lambda _: "0.0.0.0")
    run = initial(db)
    n = len(tail(db, run.id))
    where.setenv(CODE_VARIABLE, CODE)
    at = comparisons()
    for wrong in ("", "open sesame", CODE + " "):
        enter(at, wrong)
        assert load("en")("owner.wrong") in texts(at)
        assert say("comparisons.not_allowed") in texts(at)
    enter(at, CODE)
    assert say("comparisons.not_allowed") not in texts(at)
    fine(at.radio[0].set_value(Preference.TIE).run())
    fine(at.button(key="comparisons-save").click().run())
    assert (len(tail(db, run.id)), tail(db, run.id)[-1].annotator) == (n + 1, "boss")
    fine(at.selectbox(key="comparisons-open").set_value(n + 1).run())
    fine(at.radio[0].set_value(Preference.RIGHT).run())
    where.setenv(CODE_VARIABLE, "another one")  # between the page that he sees and his click
    fine(at.button(key="comparisons-save").click().run())
    assert len(tail(db, run.id)) == n + 1
    assert say("comparisons.not_allowed") in texts(at)
    assert not transfer().file_uploader
