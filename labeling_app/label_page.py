"""The page on which people compare clips."""

from __future__ import annotations

import logging
import time
from typing import Any

import streamlit as st

from labeling_app.annotator import clean_name
from labeling_app.instructions import task_instructions
from labeling_app.labeler import labeler, sent_before
from labeling_app.outbox import Sent
from labeling_app.personal import authenticated, choose_language, choose_name, page_keys, page_words, visitor
from labeling_app.rights import entered
from labeling_app.session import Labeler
from labeling_app.source import database, exists, find_run, source
from labeling_app.states import PageState
from labeling_app.view import board, empty_board
from labeling_app.words import Words
from prefrl.errors import StoreError
from prefrl.store.engine import Database
from prefrl.store.runs import Run
from prefrl.types import MAX_NAME

_LOG = logging.getLogger("labeling_app")


def label_page() -> None:
    """Name, instructions, and the pairs."""
    words = page_words()
    annotator = visitor()
    if annotator is None and authenticated():
        st.error(words("page.nameless"))
        return
    if annotator is None:
        _ask_name(words)
        return
    _board(words, annotator)
    _settings(words, annotator)


@st.fragment
def _board(words: Words, annotator: str) -> None:
    """Reruns alone at every answer, so that the rest of the page is left in peace."""
    if not entered():
        st.rerun()
    found = _look()
    if found is not PageState.UNREACHABLE:  # else what was told stays: nothing moves while somebody looks
        st.session_state["instructions"] = _instructions(found, words)
    st.markdown(st.session_state.get("instructions") or words("page.instructions"))
    sent = sent_before()
    data = _data(found, words, annotator, sent)
    data["keys"] = page_keys()
    data["pass"] = time.monotonic_ns()  # the browser counts passes, also those without news
    came = labeler(data)
    if came.tab and not sent.tab:  # the first pass of a new session knows what was sent only now
        _data(found, words, annotator, came)


def _look() -> tuple[Database, Run] | PageState:
    """The run that is shown, or why there is none."""
    try:
        where = source()
        if not exists(where.url):
            return PageState.NO_RUN
        db = database(where.url)
        run = find_run(db, where.run_name)
    except StoreError as error:
        _LOG.warning("%s", error)
        return PageState.UNREACHABLE
    return PageState.NO_RUN if run is None else (db, run)


def _data(found: tuple[Database, Run] | PageState, words: Words, annotator: str, sent: Sent) -> dict[str, Any]:
    if isinstance(found, PageState):
        return empty_board(words, found)
    labeler = Labeler(*found, annotator, sent.tab, detail={"authenticated": authenticated()})
    return board(labeler, words, sent.entries)


def _instructions(found: tuple[Database, Run] | PageState, words: Words) -> str:
    """The owner's words for this task, and what holds for all tasks."""
    general = words("page.instructions")
    task = "" if isinstance(found, PageState) else task_instructions(found[1], words)
    return f"{task}\n\n{general}" if task else general


def _ask_name(words: Words) -> None:
    st.header(words("page.title"))
    with st.form("who", border=False):
        typed = st.text_input(words("page.name_label"), max_chars=MAX_NAME, help=words("page.name_help"))
        sent = st.form_submit_button(words("page.name_button"), type="primary")
    if not sent:
        return
    name = clean_name(typed)
    if name is None:
        st.error(words("page.name_bad"))
        return
    st.query_params["name"] = name  # kept in the address, so that a reload goes on
    st.rerun()


def _settings(words: Words, annotator: str) -> None:
    with st.expander(words("page.settings")):
        choose_name(words, annotator)
        choose_language(words)
