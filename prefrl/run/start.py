"""Starting a run that exists, in either mode."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

from prefrl.run.people import Page, PageOptions
from prefrl.run.status import Status, read_status
from prefrl.store.engine import Database
from prefrl.store.runs import Run


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
    if mode == "lockstep":
        from prefrl.run.lockstep import run_lockstep

        done = run_lockstep(db, run, _Interrupt(), str(folder / "tensorboard"))
    else:
        from rich.console import Console

        from prefrl.run.supervisor import Supervisor
        from prefrl.run.view import View

        with View(Console(stderr=to_stderr)) as view:
            labeling = Page(url, run.name, folder, page) if page else None
            done = Supervisor(db, url, run, folder, view, labeling).supervise()
    return done, read_status(db, run.name)


class _Interrupt:
    """True after the first Ctrl-C or SIGTERM; the second one interrupts at once."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __call__(self) -> bool:
        return self.asked
