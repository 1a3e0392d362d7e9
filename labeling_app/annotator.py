"""Who is at the keyboard: a typed name, which nobody has checked."""

from __future__ import annotations

import unicodedata

from prefrl.types import MAX_NAME

RESERVED = ("oracle", "import")  # annotators that are no persons
_SIGNS = " ._-@+'"


def clean_name(typed: str | None) -> str | None:
    """The name as it is stored, or None where it cannot be one."""
    name = " ".join(unicodedata.normalize("NFC", typed or "").split())
    plain = all(sign.isalnum() or sign in _SIGNS or unicodedata.combining(sign) for sign in name)
    if not (1 <= len(name) <= MAX_NAME and plain) or name.lower() in RESERVED:
        return None
    return name
