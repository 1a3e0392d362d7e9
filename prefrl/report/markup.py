"""Small pieces of HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime


def escape(text: object) -> str:
    """Any text from the database, safe inside HTML."""
    return html.escape(str(text))


def number(value: float) -> str:
    """A count with separators, or three significant digits; a hyphen for NaN."""
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.1f} %"


def moment(ms: int) -> str:
    """A time of the database's clock."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(ms: int) -> str:
    """How long ago, in the unit that suits."""
    seconds = max(0, ms) / 1000
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def figure(svg: str, title: str, reading: str) -> str:
    """A chart with its title and one sentence of how to read it (plain text, both)."""
    return (
        f"<figure><h3>{escape(title)}</h3><div role='img' aria-label='{escape(title)}'>{svg}</div>"
        f"<figcaption>{escape(reading)}</figcaption></figure>"
    )


def missing(title: str, why: str) -> str:
    """What stands in the place of a chart that cannot be drawn yet (plain text)."""
    return f"<figure><h3>{escape(title)}</h3><p class='missing'>{escape(why)}</p></figure>"


def section(title: str, *parts: str, intro: str = "") -> str:
    """A heading and what belongs to it; figures flow beside each other where there is room."""
    lead = f"<p>{escape(intro)}</p>" if intro else ""
    return f"<section><h2>{escape(title)}</h2>{lead}<div class='cards'>{''.join(parts)}</div></section>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table that scrolls by itself on a narrow screen; cells are escaped."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """A few numbers that matter most, as a description list."""
    return (
        "<dl class='tiles'>"
        + "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in pairs)
        + "</dl>"
    )
