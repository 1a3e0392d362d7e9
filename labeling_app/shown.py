"""How the pages show a number: with words, a unit, and a sentence of what it means."""

from __future__ import annotations

import math
from typing import Protocol

import streamlit as st

from prefrl.report.agreement import Share


class Say(Protocol):
    """Looks words up: ``say("dashboard.title")``, with values for the places in braces."""

    def __call__(self, key: str, /, **values: object) -> str:
        """The words of a key in the language of the page."""


NONE = "–"  # noqa: RUF001  # an en dash: there is no such number (yet)


def duration(ms: float | None, say: Say) -> str:
    """A time in the unit that suits."""
    if ms is None or not math.isfinite(ms):
        return NONE
    seconds = max(0.0, ms) / 1000
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return say(f"dashboard.{unit}", n=f"{seconds / size:.0f}")
    return say("dashboard.seconds", n=f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}")


def percent(share: Share | None) -> str:
    """A share as a percentage with what it is a share of."""
    return NONE if share is None else f"{100 * share.value:.0f} % ({share.k}/{share.n})"


def number(value: float | None) -> str:
    """Three significant digits, or a count with separators."""
    if value is None or not math.isfinite(value):
        return NONE
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def plain(text: object) -> str:
    """Text of the database with what Markdown would take for markup made harmless."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()<>#+-.!|~$:^=&" else c for c in str(text)).replace("\n", " ")


def tile(label: str, value: str, caption: str) -> None:
    """One number with its meaning underneath."""
    with st.container(border=True, height="stretch"):  # as tall as its neighbours
        st.metric(label, value)
        st.caption(caption)


def tiles(entries: list[tuple[str, str, str]], n_columns: int = 3) -> None:
    """Numbers side by side; on a phone under each other."""
    for start in range(0, len(entries), n_columns):
        row = entries[start : start + n_columns]
        for column, entry in zip(st.columns(n_columns), row, strict=False):
            with column:
                tile(*entry)
