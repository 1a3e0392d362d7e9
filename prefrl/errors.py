"""The errors a person can cause; each message names the thing, what was found, and how to mend it."""

from __future__ import annotations

import difflib
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

_NOT_THEIRS = (str(Path(__file__).parent), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


class PrefrlError(Exception):
    """Root of all errors that prefrl raises on purpose; shown as one line, without a traceback."""


class ConfigError(PrefrlError):
    """A setting has a value that cannot work."""


class StoreError(PrefrlError):
    """The comparison database cannot be reached, read or written as asked."""


class FencedError(StoreError):
    """Another process has taken over this role or lease; the caller must stop using it."""


class EnvError(PrefrlError):
    """An environment is unknown, unsuitable, or returned a value that is not finite."""


class RewardError(PrefrlError):
    """The reward model produced, or was given, something unusable."""


class DataError(PrefrlError):
    """An imported or stored record is not valid."""


def describe(error: BaseException) -> str:
    """An exception of somebody's own code in one line, with the innermost place in that code: file and line."""
    words = " ".join(str(error).split())
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, SyntaxError):  # names its place itself
        return text
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith((*_NOT_THEIRS, "<"))]
    return f"{text} ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else text


def nearest(word: str, names: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the closest name, or an empty string."""
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]}?" if close else ""
