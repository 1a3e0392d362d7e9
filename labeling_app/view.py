"""What the component in the browser is given. Nothing here tells policy, reward, purpose or version of a query."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from labeling_app.clips import SIDES, clip_url, routed
from labeling_app.session import Ack, Held, Labeler, Pair, Taken
from labeling_app.states import PageState, Situation, situation
from labeling_app.words import Words, ack_line, state_words
from prefrl.errors import StoreError
from prefrl.store.engine import Database


def board(labeler: Labeler, words: Words, entries: list[Any]) -> dict[str, Any]:
    """One pass of the page: stores what was sent, takes new pairs, and says what to show.

    A tab that has not said its name yet gets none, else one that is loaded anew would hold twice as many.
    """
    taken = labeler.take(entries)
    if not taken.reachable:
        return _data(labeler, words, taken, None, Situation(PageState.UNREACHABLE))
    if not labeler.tab:
        return _data(labeler, words, taken, None, Situation(PageState.READY))
    try:
        held = labeler.refill()
        now = situation(labeler.db, labeler.run, labeler.annotator, held, labeler.tab)
        return _data(labeler, words, taken, held, now)
    except StoreError:
        return _data(labeler, words, taken, None, Situation(PageState.UNREACHABLE))


def empty_board(words: Words, state: PageState) -> dict[str, Any]:
    """Where no run can be named; the browser keeps what it has."""
    return {
        "run": "",
        "who": "",
        "pairs": None,
        "past": None,
        "acks": [],
        "done": 0,
        "budget": 0,
        "state": state_words(words, Situation(state)),
        "words": words.table("labeler"),
    }


def _data(labeler: Labeler, words: Words, taken: Taken, held: Held | None, now: Situation) -> dict[str, Any]:
    known = held or Held()
    db = labeler.db
    return {
        "run": labeler.key,
        "who": sha256(f"{labeler.key}/{labeler.annotator}".encode()).hexdigest()[:16],
        "pairs": None if held is None else [_pair(db, pair) for pair in held.pairs],
        "past": None if held is None else [{"id": one.id, **_past(db, one.pair)} for one in held.past],
        "acks": [_ack(words, ack, known) for ack in taken.acks],
        "done": known.done,
        "budget": known.budget,
        "state": state_words(words, now),
        "words": words.table("labeler"),
    }


def _pair(db: Database, pair: Pair) -> dict[str, Any]:
    clips = {side: clip_url(db, pair.token, side) for side in SIDES}
    return {"token": pair.token, "query_id": pair.query_id, "replaces": pair.replaces, **clips}


def _past(db: Database, pair: Pair) -> dict[str, Any]:
    """A pair that is shown again only after an undo: without a route its clips come then, not now."""
    clips = {side: clip_url(db, pair.token, side) if routed() else "" for side in SIDES}
    return {"token": pair.token, "query_id": pair.query_id, "replaces": "", **clips}


def _ack(words: Words, ack: Ack, held: Held) -> dict[str, Any]:
    return {"id": ack.id, "stored": ack.stored, "line": ack_line(words, ack, held)}
