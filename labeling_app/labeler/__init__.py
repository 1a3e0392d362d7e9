"""The component in the browser: a pair of clips, the next ones behind it, and the outbox of answers.

`labeler.js` swaps pairs at once and keeps every answer until it is acknowledged; here is only its door.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from labeling_app.outbox import Sent, read_sent

KEY = "labeler"
_HERE = Path(__file__).parent


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


_component = st.components.v2.component(
    "prefrl.labeler",
    html=_text("labeler.html"),
    css=_text("labeler.css"),
    # one module for the browser: five files for the reader
    js="\n".join(_text(name) for name in ("tab.js", "outbox.js", "player.js", "labeler.js", "render.js")),
)


def sent_before() -> Sent:
    """What the browser has sent, as of the beginning of this pass."""
    state = st.session_state.get(KEY)
    return read_sent(state.get("outbox") if isinstance(state, Mapping) else None)


def labeler(data: dict[str, Any]) -> Sent:
    """Shows the component, and returns what came with this pass."""
    result = _component(key=KEY, data=data, default={"outbox": None}, on_outbox_change=lambda: None)
    return read_sent(result.get("outbox"))
