"""What the browser sends: checked entry by entry, so that a bad one never stops the good ones behind it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KINDS = ("left", "right", "tie", "incomparable", "skip", "undo")
MAX_ENTRIES = 500  # of one batch; the browser sends the rest with the next one
MAX_RESPONSE_MS = 24 * 3_600_000
VIEW = ("loops", "replays", "speed", "wait_ms")  # numbers about how the pair was watched
_TAB = re.compile(r"[0-9a-f]{16}\Z")
_ID = re.compile(r"[0-9A-Za-z-]{8,64}\Z")
_TOKEN = re.compile(r"[0-9A-Za-z-]{8,96}\Z")


class MalformedError(ValueError):
    """An entry that no page of ours sends; ``id`` is what it calls itself, for the acknowledgement."""

    def __init__(self, id_: str) -> None:
        super().__init__(f"the entry {id_!r} of the outbox is malformed")
        self.id = id_


@dataclass(frozen=True)
class Entry:
    """One thing an annotator did.

    Attributes:
        id: Made by the browser; sending an entry again changes nothing.
        kind: One of `KINDS`.
        token: The lease under which the pair was on the screen.
        query_id: The query of that lease, as a check.
        run: Key of the run it belongs to, or "" where the sender does not say.
        target: For ``undo``: the id of the answer to take back.
        replaces: For a pair that is answered anew: the id of the undo before it.
        response_ms: From the first picture to the answer, measured in the browser.
        view: How the pair was watched.
    """

    id: str
    kind: str
    token: str
    query_id: int
    run: str = ""
    target: str = ""
    replaces: str = ""
    response_ms: int | None = None
    view: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sent:
    """What came from the browser: which of a person's tabs it is ("": it has not said so yet), and its entries."""

    tab: str = ""
    entries: list[Any] = field(default_factory=list)


def read_sent(raw: object) -> Sent:
    """Reads what came, whatever it is."""
    if not isinstance(raw, Mapping):
        return Sent()
    tab, entries = raw.get("tab"), raw.get("entries")
    return Sent(
        tab if isinstance(tab, str) and _TAB.match(tab) else "",
        entries[:MAX_ENTRIES] if isinstance(entries, list) else [],
    )


def read_entry(raw: object) -> Entry:
    """Checks one entry.

    Raises:
        MalformedError: It is not of the form above.
    """
    if not isinstance(raw, dict):
        raise MalformedError("")
    id_, token, kind, query_id = (raw.get(name) for name in ("id", "token", "kind", "query_id"))
    if not isinstance(id_, str) or not _ID.match(id_):
        raise MalformedError(id_[:64] if isinstance(id_, str) else "")
    links = {name: raw.get(name) or "" for name in ("run", "target", "replaces")}
    if (
        kind not in KINDS
        or not (isinstance(token, str) and _TOKEN.match(token))
        or not isinstance(query_id, int)
        or isinstance(query_id, bool)
        or not all(isinstance(link, str) and len(link) <= 64 for link in links.values())
        or (kind == "undo" and not _ID.match(links["target"]))
    ):
        raise MalformedError(id_)
    response = _number(raw.get("response_ms"))
    return Entry(
        id=id_,
        kind=kind,
        token=token,
        query_id=query_id,
        response_ms=None if response is None or not 0 <= response <= MAX_RESPONSE_MS else int(response),
        view=_view(raw.get("view")),
        **links,
    )


def _view(raw: object) -> dict[str, float]:
    found = {name: _number(raw.get(name)) for name in VIEW} if isinstance(raw, dict) else {}
    return {name: value for name, value in found.items() if value is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e12 else None  # neither NaN nor infinity is
