"""Starting a run that exists, in either mode."""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

from prefrl.run.people import Page, PageOptions
from prefrl.run.status import Status, read_status
from prefrl.store.engine import Database
from prefrl.store.runs import Run, interrupt_run

if TYPE_CHECKING:
    from prefrl.run.view import View

LOOK_EVERY_S = 0.1  # a signal that the kernel gave to another thread is noticed when the main thread wakes


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
    """The work in a thread, while the main thread waits for its end or for the user.

    An exception out of a signal's handler, in the midst of the work, can leave a lock of the database's pool taken
    for ever. What is still at work when the user asks a second time ends with the process, as after a kill.
    """
    from prefrl.run.lockstep import run_lockstep
    from prefrl.run.view import SHOW_EVERY_S

    shown = 0.0
    ended: Future[bool] = Future()

    def show() -> None:
        nonlocal shown
        if time.monotonic() - shown > SHOW_EVERY_S:
            view.show(read_status(db, run.name))
            shown = time.monotonic()

    def work() -> None:
        try:
            ended.set_result(run_lockstep(db, run, interrupt, str(folder / "tensorboard"), show))
        except BaseException as error:  # for the main thread to raise
            ended.set_exception(error)

    worker = threading.Thread(target=work, daemon=True, name="lockstep")
    with _Interrupt(view) as interrupt:
        worker.start()
        while worker.is_alive() and interrupt.times < 2:
            worker.join(LOOK_EVERY_S)
    if worker.is_alive() and interrupt_run(db, run.id):
        return False
    return ended.result()


class _Interrupt:
    """True after Ctrl-C or SIGTERM; how often they came is counted."""

    def __init__(self, view: View) -> None:
        self.view, self.times, self.said = view, 0, False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.times += 1

    def __call__(self) -> bool:
        if self.times and not self.said:
            from prefrl.run.view import STOPPING

            self.said = True
            self.view.say(STOPPING)
        return self.times > 0
