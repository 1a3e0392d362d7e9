"""Who may come in, and who may change what others said: codes that the owner sets where he starts the page."""

from __future__ import annotations

import hmac
import os
import time

import streamlit as st

from labeling_app.serve import ACCESS_VARIABLE, CODE_VARIABLE, USER_VARIABLE, is_loopback
from labeling_app.words import Words

WRONG_S = 1.0  # how long a wrong code takes


def may_enter(words: Words) -> bool:
    """Whether this visitor may see the pages and answer, as of this pass; asks for the access code if there is one."""
    return not os.environ.get(ACCESS_VARIABLE) or _knows(ACCESS_VARIABLE, words, "access")


def entered() -> bool:
    """The same without asking: for the parts of a page that run alone."""
    return not os.environ.get(ACCESS_VARIABLE) or _right(ACCESS_VARIABLE, st.session_state.get(ACCESS_VARIABLE))


def may_change(words: Words) -> bool:
    """Whether this visitor may change answers and settings and import, as of this pass; asks for the code if there is.

    Without a code nobody may where others can reach the page, directly or through a proxy.
    """
    if not os.environ.get(CODE_VARIABLE):
        others = os.environ.get(ACCESS_VARIABLE) or os.environ.get(USER_VARIABLE)
        # Streamlit that was started without an address listens on all of them
        return not others and is_loopback(str(st.get_option("server.address") or ""))
    return _knows(CODE_VARIABLE, words, "owner")


def _knows(variable: str, words: Words, table: str) -> bool:
    """Whether the visitor has typed a code; else asks for it."""
    if _right(variable, st.session_state.get(variable)):
        return True
    with st.form(table, border=False):
        typed = st.text_input(words(f"{table}.code"), type="password", autocomplete="off")
        sent = st.form_submit_button(words(f"{table}.button"))
    if sent and _right(variable, typed):
        st.session_state[variable] = typed  # not that it was right: the next pass asks again
        st.rerun()
    if sent:
        time.sleep(WRONG_S)
        st.error(words(f"{table}.wrong"))
    return False


def _right(variable: str, typed: object) -> bool:
    code = os.environ.get(variable, "")
    return bool(code) and hmac.compare_digest(str(typed or "").encode(), code.encode())
