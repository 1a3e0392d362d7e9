"""Starting a run that exists, in either mode."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from prefrl.run.people import Page, PageOptions
from prefrl.run.status import Status, read_status
from prefrl.store.engine import Database
from prefrl.store.runs import Run

if TYPE_CHECKING:
    from prefrl.run.view import View


def start(
    db: Database,
    url: str,
    run: Run,
    mode: str,
    folder: Path,
    *,
    to_stderr: bool = False,
    page: PageOptions | None = None,
) -> tuple[bool, Status]:
    """Run to the end, or until the user stops it.

    Args:
        db: The run's database.
        url: Its URL, for other processes.
        run: The run.
        mode: ``async`` (supervised processes) or ``lockstep`` (this process alone).
        folder: For logs and TensorBoard files.
        to_stderr: Show the progress there, and leave standard output alone.
        page: Where to serve the labeling page meanwhile (async only), or None for no page.

    Returns:
        Whether it reached its end, and its status.
    """
    from rich.console import Console

    from prefrl.run.view import View

    with View(Console(stderr=to_stderr)) as view:
        if mode == "lockstep":
            done = _in_lockstep(db, run, folder, view)
        else:
            from prefrl.run.supervisor import Supervisor

            labeling = Page(url, run.name, folder, page) if page else None
            done = Supervisor(db, url, run, folder, view, labeling).supervise()
    return done, read_status(db, run.name)


def _in_lockstep(db: Database, run: Run, folder: Path, view: View) -> bool:
    from prefrl.run.lockstep import run_lockstep
    from prefrl.run.view import SHOW_EVERY_S

    shown = 0.0

    def show() -> None:
        nonlocal shown
        if time.monotonic() - shown > SHOW_EVERY_S:
            view.show(read_status(db, run.name))
            shown = time.monotonic()

    return run_lockstep(db, run, _Interrupt(view), str(folder / "tensorboard"), show)


class _Interrupt:
    """True after the first Ctrl-C or SIGTERM; the second one interrupts at once."""

    def __init__(self, view: View) -> None:
        self.view, self.asked, self.said = view, False, False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __call__(self) -> bool:
        if self.asked and not self.said:  # not in the handler, which may have interrupted another line
            from prefrl.run.view import STOPPING

            self.said = True
            self.view.say(STOPPING)
        return self.asked
