"""Comparisons to a file and from a file, in the browser. What comes in is data: its name is never a path here."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path, PurePosixPath, PureWindowsPath

import streamlit as st

from labeling_app.shown import Say
from prefrl.errors import DataError, PrefrlError
from prefrl.store.engine import Database
from prefrl.store.folder import is_clips
from prefrl.store.runs import get_run
from prefrl.transfer import export_comparisons, import_comparisons
from prefrl.transfer.columns import FORMATS
from prefrl.transfer.labels import ENCODINGS

NAMES = {".csv": "CSV", ".jsonl": "JSONL", ".parquet": "Parquet"}
EXPORTS = {".csv": "text/csv", ".jsonl": "application/x-ndjson", ".parquet": "application/vnd.apache.parquet"}


def page(db: Database, run_name: str, say: Say, *, editable: bool = True) -> None:
    """Draw the page.

    Args:
        db: The database of the run.
        run_name: The run.
        say: Looks words up in the table ``transfer``.
        editable: Whether this person may import; asked anew at every click.
    """
    st.title(say("transfer.title"))
    try:
        of_clips = is_clips(get_run(db, run_name))
    except PrefrlError as error:
        st.text(str(error))
        return
    exporting(db, run_name, say, of_clips=of_clips)
    st.divider()
    if of_clips:
        st.info(say("transfer.clips_run"))
        return
    importing(db, run_name, say, editable=editable)


def exporting(db: Database, run_name: str, say: Say, *, of_clips: bool = False) -> None:
    """Prepare a file, then offer it."""
    st.header(say("transfer.export"))
    st.caption(say("transfer.clips_export_means" if of_clips else "transfer.export_means"))
    suffix = st.radio(
        say("transfer.format"),
        list(EXPORTS),
        format_func=NAMES.__getitem__,
        horizontal=True,
        key="transfer-format",
    )
    if st.button(say("transfer.prepare"), key="transfer-prepare"):
        st.session_state.pop("transfer-export", None)  # one at a time: it is in memory
        try:
            st.session_state["transfer-export"] = (run_name, suffix, exported(db, run_name, suffix))
        except PrefrlError as error:
            st.text(str(error))
    ready = st.session_state.get("transfer-export")
    if ready and ready[:2] == (run_name, suffix):
        name, size = download_name(run_name, suffix), len(ready[2])
        shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, size // 1000)} kB"
        st.download_button(
            say("transfer.download", name=name, size=shown),
            ready[2],
            file_name=name,
            mime=EXPORTS[suffix],
            key="transfer-download",
        )


def exported(db: Database, run_name: str, suffix: str) -> bytes:
    """The comparisons of a run as the bytes of a file.

    Raises:
        DataError: A stored value cannot be written; the message says which.
        StoreError: There is no such run.
    """
    with tempfile.TemporaryDirectory(prefix="prefrl-export-") as folder:
        file = Path(folder) / f"comparisons{suffix}"
        export_comparisons(db, run_name, file)
        return file.read_bytes()


def importing(db: Database, run_name: str, say: Say, *, editable: bool) -> None:
    """Check a file, and only then store it."""
    st.header(say("transfer.import"))
    st.caption(say("transfer.import_means"))
    if db.readonly or not editable:
        st.info(say("transfer.read_only" if db.readonly else "transfer.not_allowed"))
        return
    upload = st.file_uploader(say("transfer.file"), type=[s[1:] for s in FORMATS], key="transfer-file")
    labels = st.selectbox(
        say("transfer.labels"),
        [None, *ENCODINGS],
        format_func=lambda code: say(f"transfer.labels_{code or 'auto'}"),
        key="transfer-labels",
    )
    if upload is None:
        return
    try:
        name = safe_name(upload.name)
    except DataError:
        st.error(say("transfer.bad_name"))
        return
    content = upload.getvalue()
    this = (run_name, name, labels, hashlib.sha256(content).hexdigest())
    if st.button(say("transfer.check"), key="transfer-check"):
        st.session_state.pop("transfer-checked", None)
        n_valid = _import(db, run_name, name, content, labels, say, dry_run=True)
        if n_valid is not None:
            st.session_state["transfer-checked"] = (this, n_valid)
    checked = st.session_state.get("transfer-checked")
    if not checked or checked[0] != this:
        st.caption(say("transfer.check_first"))
        return
    if not checked[1]:
        st.warning(say("transfer.none"))
        return
    st.info(say("transfer.valid", n=f"{checked[1]:,}"))
    if st.button(say("transfer.store", n=f"{checked[1]:,}"), key="transfer-store"):
        n_new = _import(db, run_name, name, content, labels, say, dry_run=False)
        if n_new is not None:
            del st.session_state["transfer-checked"]
            st.success(say("transfer.added", n=f"{n_new:,}", known=f"{checked[1] - n_new:,}"))


def _import(
    db: Database, run_name: str, name: str, content: bytes, labels: str | None, say: Say, *, dry_run: bool
) -> int | None:
    """Rows that are valid or were added; None after saying what is wrong, row by row."""
    with tempfile.TemporaryDirectory(prefix="prefrl-import-") as folder:
        file = Path(folder) / f"upload{PurePosixPath(name).suffix.lower()}"
        file.write_bytes(content)
        try:
            return import_comparisons(db, run_name, file, labels=labels, dry_run=dry_run)
        except PrefrlError as error:
            st.error(say("transfer.problem"))
            st.text(str(error).replace(str(file), name))  # text, not Markdown: it quotes the file
    return None


def safe_name(name: str) -> str:
    """The last part of an uploaded file's name, which may be a path inside a folder that was uploaded.

    Raises:
        DataError: It is empty, absolute here or on Windows, goes up with ``..``, or holds control characters.
    """
    path, windows = PurePosixPath(name), PureWindowsPath(name)
    bad = (
        path.is_absolute()
        or bool(windows.drive or windows.root)
        or ".." in path.parts
        or ".." in windows.parts
        or any(ord(c) < 32 or ord(c) == 127 for c in name)
        or not windows.name
    )
    if bad:
        raise DataError(f"{name!r} is no name of a file inside a folder: absolute paths and .. are refused")
    return windows.name  # knows both kinds of slashes


def download_name(run_name: str, suffix: str) -> str:
    """A file's name made of the run's; what a file system may not like becomes a hyphen."""
    kept = "".join(c if c.isalnum() or c in "_-" else "-" for c in run_name).strip("-") or "run"
    return f"{kept[:80]}-comparisons{suffix}"
