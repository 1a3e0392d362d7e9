"""Labels as files write them, told apart: the same 0 means three different things."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from prefrl.errors import DataError
from prefrl.transfer.reading import RowError
from prefrl.types import Preference

# encoding -> label -> mu, the mass on segment 1
ENCODINGS: dict[str, dict[float, float]] = {
    "mu": {0.0: 0.0, 0.5: 0.5, 1.0: 1.0},
    "sign": {-1.0: 0.0, 0.0: 0.5, 1.0: 1.0},
    "index": {0.0: 1.0, 0.5: 0.5, 1.0: 0.0},
}
ANSWERS = ("left", "right", "tie", "incomparable")


def read_label(row: dict[str, Any], shown_left: int, labels: str | None) -> Preference | float:
    """The answer of a row, or the number in its column ``label``, whose encoding only the whole file tells.

    Raises:
        RowError: There is no label, two that differ, or one that is none.
    """
    word, mu, label = (row.get(name) for name in ("preference", "mu", "label"))
    if label is not None:
        if word is not None or mu is not None:
            raise RowError("has a label and a preference or mu besides: leave one of them")
        return _number("label", label, {value for known in ENCODINGS.values() for value in known})
    if word is None and mu is None:
        raise RowError("has no label: preference, mu or label is missing")
    if labels is not None and (labels != "mu" or mu is None):
        raise RowError(f"has no column label, which --labels {labels} is about: leave --labels out")
    told = None if mu is None else _number("mu", mu, ENCODINGS["mu"])
    if word is None:
        assert told is not None
        return from_mu(told, shown_left)
    if word not in ANSWERS:
        raise RowError(f"preference is {word!r}: one of {', '.join(ANSWERS)} is needed")
    preference = Preference(word)
    if mu is not None and preference.mu(shown_left) != told:
        raise RowError(f"mu is {mu}, but preference {word} with segment {shown_left} on the left means another one")
    return preference


def encoding(labels: str | None, values: Iterable[float]) -> str:
    """Which encoding a column ``label`` has.

    Args:
        labels: What the user said, or None.
        values: All labels of the file.

    Raises:
        DataError: Only the user can know; or no encoding has all these values.
    """
    if labels is not None:
        return labels
    found = set(values)
    known = [name for name, codes in ENCODINGS.items() if found <= codes.keys()]
    if len(known) == 1:
        return known[0]
    shown = ", ".join(f"{value:g}" for value in sorted(found))
    if not known:
        raise DataError(f"no encoding of the column label has all of {shown}: -1 and 0.5 do not go together")
    raise DataError(
        f"the column label holds {shown}, which could be {' or '.join(known)}: say which with --labels "
        "(mu: mass on segment 1; sign: 1, 0 tie, -1; index: 0 the first is preferred, 1 the second)"
    )


def decode(label: float, code: str, shown_left: int) -> Preference:
    """A label as an answer.

    Raises:
        RowError: This encoding has no such label.
    """
    if label not in ENCODINGS[code]:
        wanted = ", ".join(f"{value:g}" for value in sorted(ENCODINGS[code]))
        hint = " (where -1 means equal, write 0.5)" if code == "index" and label == -1 else ""
        raise RowError(f"label is {label:g}: --labels {code} knows {wanted}{hint}")
    return from_mu(ENCODINGS[code][label], shown_left)


def from_mu(mu: float, shown_left: int) -> Preference:
    """The answer as shown that puts this mass (0, 0.5 or 1) on segment 1."""
    if mu == 0.5:
        return Preference.TIE
    return Preference.LEFT if (mu == 1.0) == (shown_left == 1) else Preference.RIGHT


def _number(name: str, value: Any, known: Iterable[float]) -> float:
    wanted = ", ".join(f"{each:g}" for each in sorted(known))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RowError(f"{name} is {value!r}: one of {wanted} is needed")
    if value not in known:
        more = " (a mean of several answers: give each answer a row)" if 0 < value < 1 else ""
        raise RowError(f"{name} is {value:g}: one of {wanted} is needed{more}")
    return float(value)
