"""What to type next, as a shell takes it."""

from __future__ import annotations

import os
from shlex import quote

DEFAULT_DB = "sqlite:///runs/prefrl.db"


def usual_db() -> str:
    """The database of commands that name none."""
    return os.environ.get("PREFRL_DB", DEFAULT_DB)


def typed(name: str, url: str, shown: str) -> str:
    """A run's name, with ``--db`` where its database is not the usual one.

    Args:
        name: The run.
        url: Its database.
        shown: The same without the password.
    """
    return quote(name) if url == usual_db() else f"{quote(name)} --db {quote(shown)}"
