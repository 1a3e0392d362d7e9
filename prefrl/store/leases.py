"""Leases: who was shown a pair, and on which side its segments were; kept for ever.

A lease is a person's; which of his browser tabs it was given to is the beginning of its token. So two tabs of one
person hold pairs of their own, and a tab that is loaded anew finds its own again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from prefrl.store.schema import lease
from prefrl.types import Lease


def new_token(tab: str = "") -> str:
    """128 random bits, behind the tab's name: whoever has the token may watch the clips."""
    bits = secrets.token_hex(16)
    return f"{tab}-{bits}" if tab else bits


def of_tab(made: sa.ColumnElement[str], tab: str) -> sa.ColumnElement[bool]:
    """Whether a token, or an id that a tab made, begins with its name; with "" whatever it begins with."""
    return made.startswith(f"{tab}-" if tab else "")


def draw_side(rng: np.random.Generator | None) -> int:
    """Which segment is shown left, 1 or 2; None uses the system's randomness."""
    return 1 + (secrets.randbits(1) if rng is None else int(rng.integers(2)))


def record(connection: sa.Connection, annotator: str, leases: Sequence[Lease]) -> None:
    """Writes down what is handed out, in the same transaction."""
    rows = [
        {
            "token": one.token,
            "query_id": one.query_id,
            "annotator": annotator,
            "shown_left": one.shown_left,
            "expires_ms": one.expires_ms,
        }
        for one in leases
    ]
    if rows:
        connection.execute(sa.insert(lease), rows)
