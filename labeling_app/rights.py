"""Who may change what others said: who types the owner's code; where there is none, who is at this machine."""

from __future__ import annotations

import hmac
import os
import time

import streamlit as st

from labeling_app.serve import CODE_VARIABLE, is_loopback
from labeling_app.words import Words

WRONG_S = 1.0  # how long a wrong code takes


def may_change(words: Words) -> bool:
    """Whether this visitor may change answers and import, as of this pass; asks for the code where there is one.

    Without a code nobody may where others can reach the page.
    """
    if not os.environ.get(CODE_VARIABLE):
        # Streamlit that was started without an address listens on all of them
        return is_loopback(str(st.get_option("server.address") or ""))
    if _right(st.session_state.get("owner-code")):
        return True
    with st.form("owner", border=False):
        typed = st.text_input(words("owner.code"), type="password", autocomplete="off")
        sent = st.form_submit_button(words("owner.button"))
    if sent and _right(typed):
        st.session_state["owner-code"] = typed  # not that it was right: the next pass asks again
        st.rerun()
    if sent:
        time.sleep(WRONG_S)
        st.error(words("owner.wrong"))
    return False


def _right(typed: object) -> bool:
    code = os.environ.get(CODE_VARIABLE, "")
    return bool(code) and hmac.compare_digest(str(typed or "").encode(), code.encode())
