"""The pages for who owns the run: what they share is finding it, or saying why there is nothing to show."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from labeling_app import comparisons, dashboard, settings, transfer
from labeling_app.personal import authenticated, page_words, visitor
from labeling_app.rights import may_change
from labeling_app.source import database, exists, find_run, source
from labeling_app.states import PageState
from labeling_app.words import Words
from prefrl.errors import StoreError
from prefrl.store.engine import Database


def dashboard_page() -> None:
    """How the run and its annotators are doing."""
    _with_run(lambda db, run_name, words: dashboard.page(db, run_name, words))


def comparisons_page() -> None:
    """All answers: to look at, and for who may, to edit and to take back."""

    def show(db: Database, run_name: str, words: Words) -> None:
        name = visitor()
        nameless = authenticated() and name is None  # a proxy's name is not typed
        if nameless:
            st.error(words("page.nameless"))
        editable = may_change(words) and not nameless
        comparisons.page(db, run_name, words, annotator=name or "", editable=editable)

    _with_run(show)


def transfer_page() -> None:
    """Export, and for who may, import."""
    _with_run(lambda db, run_name, words: transfer.page(db, run_name, words, editable=may_change(words)))


def settings_page() -> None:
    """What a visitor settles for himself, and for who may, for the run."""

    def show(db: Database, run_name: str, words: Words) -> None:
        settings.page(db, run_name, words, annotator=visitor() or "", editable=may_change(words))

    _with_run(show)


def _with_run(show: Callable[[Database, str, Words], None]) -> None:
    words = page_words()
    try:
        where = source()
        db = database(where.url) if exists(where.url) else None
        run = find_run(db, where.run_name) if db is not None else None
    except StoreError as error:
        _say(words, PageState.UNREACHABLE)
        st.text(str(error))
        return
    if db is None or run is None:
        _say(words, PageState.NO_RUN)
        return
    show(db, run.name, words)


def _say(words: Words, state: PageState) -> None:
    st.header(words(f"state.{state.value}.title"))
    st.write(words(f"state.{state.value}.text"))
