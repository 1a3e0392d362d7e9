"""What each visitor chooses for himself: name, language and keys; kept in the address, where a bookmark keeps them."""

from __future__ import annotations

import os

import streamlit as st

from labeling_app.annotator import clean_name
from labeling_app.serve import USER_VARIABLE
from labeling_app.words import LANGUAGES, Words, choose, load

KEYS = ("arrows", "letters")  # layouts of labeler.js


def page_words() -> Words:
    """The catalogue of this visitor: of the address, else chosen earlier, else of the browser."""
    return load(choose(_kept("lang"), st.context.locale))


def page_keys() -> str:
    """The layout of keys that he has chosen."""
    kept = _kept("keys")
    return kept if kept in KEYS else KEYS[0]


def authenticated() -> bool:
    """Whether a proxy in front of the page says who the visitor is."""
    return bool(os.environ.get(USER_VARIABLE))


def visitor() -> str | None:
    """The name that the proxy gives, else the one that was typed; None where there is none that can be one."""
    if authenticated():
        given = st.context.headers.get_all(os.environ[USER_VARIABLE])
        return clean_name(given[0]) if len(given) == 1 else None  # of two, one came from the visitor himself
    return clean_name(_kept("name"))


def choose_language(words: Words) -> None:
    """Lets him choose another language."""
    picked = st.selectbox(
        words("page.language"),
        list(LANGUAGES),
        index=list(LANGUAGES).index(words.language),
        format_func=lambda code: LANGUAGES[str(code)],
    )
    if picked != words.language:
        st.query_params["lang"] = str(picked)
        st.rerun()


def choose_keys(words: Words) -> None:
    """Lets him choose other keys."""
    picked = st.radio(
        words("settings.keys"), KEYS, index=KEYS.index(page_keys()), format_func=lambda keys: words(f"settings.{keys}")
    )
    if picked != page_keys():
        st.query_params["keys"] = str(picked)
        st.rerun()


def choose_name(words: Words, annotator: str) -> None:
    """Says under which name he answers, and lets him take another where nobody has checked it."""
    # a name holds no sign of Markdown but these two
    st.markdown(words("page.signed", name=annotator.replace("_", "\\_").replace("-", "\\-")))
    if not authenticated() and st.button(words("page.change_name")):
        st.session_state.pop("kept-name", None)
        st.query_params.pop("name", None)
        st.rerun()


def _kept(key: str) -> str | None:
    """A word of the address, which survives a reload; Streamlit drops it where another page is opened."""
    if key in st.query_params:
        st.session_state[f"kept-{key}"] = st.query_params[key]
    kept = st.session_state.get(f"kept-{key}")
    return None if kept is None else str(kept)
