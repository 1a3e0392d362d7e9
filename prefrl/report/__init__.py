"""One self-contained HTML page about a run: what it is, whether it learns, and whether its reward can be trusted."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from prefrl.errors import PrefrlError
from prefrl.store.engine import Database

__all__ = ["write_report"]


def write_report(db: Database, run_name: str, out: Path) -> Path:
    """Write the report of a run; an older one at the same place is replaced in one step.

    Args:
        db: The run's database.
        run_name: Name of the run.
        out: The HTML file; its folder is made.

    Returns:
        The file that was written.

    Raises:
        StoreError: There is no such run; names the nearest.
        PrefrlError: The file cannot be written.
    """
    from prefrl.report.facts import read_facts
    from prefrl.report.page import render

    _replace(out, render(read_facts(db, run_name)))
    return out


def _replace(out: Path, text: str) -> None:
    temporary: str | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's file is for its owner only; a report is for sharing
        os.replace(temporary, out)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise PrefrlError(
            f"cannot write the report to {out}: {error.strerror or error}; name another file with --out"
        ) from error
