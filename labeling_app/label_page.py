"""The page on which people compare clips."""

from __future__ import annotations

import logging
import time
from typing import Any

import streamlit as st

from labeling_app.annotator import MAX_LENGTH, clean_name
from labeling_app.labeler import labeler, waiting_outbox
from labeling_app.session import Labeler
from labeling_app.source import database, exists, find_run, source
from labeling_app.states import PageState
from labeling_app.view import board, empty_board
from labeling_app.words import LANGUAGES, Words, choose, load
from prefrl.envs.tasks import find_task
from prefrl.errors import StoreError
from prefrl.store.runs import Run

_LOG = logging.getLogger("labeling_app")


def label_page() -> None:
    """Name, instructions, and the pairs."""
    words = page_words()
    annotator = visitor()
    if annotator is None:
        _ask_name(words)
        return
    st.markdown(_instructions(words))
    _board(words, annotator)
    _settings(words, annotator)


def page_words() -> Words:
    """The catalogue of this visitor: of the address, else chosen earlier, else of the browser."""
    return load(choose(_kept("lang"), st.context.locale))


def visitor() -> str | None:
    """The name that was typed, or None."""
    return clean_name(_kept("name"))


def _kept(key: str) -> str | None:
    """A word of the address, which survives a reload; Streamlit drops it where another page is opened."""
    if key in st.query_params:
        st.session_state[f"kept-{key}"] = st.query_params[key]
    kept = st.session_state.get(f"kept-{key}")
    return None if kept is None else str(kept)


@st.fragment
def _board(words: Words, annotator: str) -> None:
    """Reruns alone at every answer, so that the rest of the page is left in peace."""
    sent = waiting_outbox()
    data = _data(words, annotator, sent)
    data["pass"] = time.monotonic_ns()  # the browser counts passes, also those without news
    came = labeler(data)
    if came and not sent:  # the first pass of a new session knows what was sent only now
        _data(words, annotator, came)


def _data(words: Words, annotator: str, outbox: object) -> dict[str, Any]:
    try:
        where = source()
        if not exists(where.url):
            return empty_board(words, PageState.NO_RUN)
        db = database(where.url)
        run = find_run(db, where.run_name)
    except StoreError as error:
        _LOG.warning("%s", error)
        return empty_board(words, PageState.UNREACHABLE)
    if run is None:
        return empty_board(words, PageState.NO_RUN)
    return board(Labeler(db, run, annotator), words, outbox)


def _instructions(words: Words) -> str:
    """The owner's words for this task, else what holds for all tasks."""
    general = words("page.instructions")
    try:
        where = source()
        run = find_run(database(where.url), where.run_name) if exists(where.url) else None
    except StoreError:
        return general
    task = task_instructions(run, words) if run else ""
    return f"{task}\n\n{general}" if task else general


def task_instructions(run: Run, words: Words) -> str:
    """What the run's configuration says to annotators, else the words for its task in their language."""
    label, env = run.config.get("label"), run.config.get("env")
    own = label.get("instructions") if isinstance(label, dict) else None
    if isinstance(own, str) and own.strip():
        return own
    task = find_task(str(env.get("id"))) if isinstance(env, dict) else None
    return f"**{words(f'tasks.{task.name}')}**" if task else ""


def _ask_name(words: Words) -> None:
    st.header(words("page.title"))
    with st.form("who", border=False):
        typed = st.text_input(words("page.name_label"), max_chars=MAX_LENGTH, help=words("page.name_help"))
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
        # a name holds no sign of Markdown but these two
        shown = annotator.replace("_", "\\_").replace("-", "\\-")
        st.markdown(words("page.signed", name=shown))
        picked = st.selectbox(
            words("page.language"),
            list(LANGUAGES),
            index=list(LANGUAGES).index(words.language),
            format_func=lambda code: LANGUAGES[str(code)],
        )
        if picked != words.language:
            st.query_params["lang"] = str(picked)
            st.rerun()
        if st.button(words("page.change_name")):
            del st.session_state["kept-name"]
            st.query_params.pop("name", None)
            st.rerun()
