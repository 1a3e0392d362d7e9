"""What a run with people as annotators needs beside its roles: the labeling page, a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from prefrl.errors import ConfigError
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.folder import is_clips
from prefrl.store.runs import Run, get_run
from prefrl.store.workers import present_roles

HOST, FIRST_PORT, N_PORTS = "127.0.0.1", 8501, 100
NEEDED = ("labeling_app.serve", "streamlit", "av")
MAX_DEATHS = 5  # of the page in a row: with the pauses more than a minute, for which a database may go away
BACK_OFF_S = 5.0  # from one start to the next, twice as long after each death
CALM_AFTER_S = 30.0  # a page that was there for so long may be started again, as often as it takes
STOP_WITHIN_S = 5.0


@dataclass(frozen=True)
class PageOptions:
    """Where the labeling page of a run is served."""

    host: str = HOST
    port: int | None = None
    browser: bool = True


def check_page() -> None:
    """Refuse to serve the labeling page where its packages are missing, without importing them.

    Raises:
        ConfigError: Names the first that is missing.
    """
    for name in NEEDED:
        try:
            found = find_spec(name) is not None
        except ImportError:  # of a parent
            found = False
        if not found:
            raise ConfigError(f"the labeling page needs the extra `app`: pip install 'prefrl[app]' (no module {name})")


def free_port(host: str, wanted: int | None = None) -> int:
    """The port that was asked for, or the first one from 8501 on that nobody uses.

    Raises:
        ConfigError: It is in use, or the host is not one of this machine's.
    """
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + N_PORTS):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: an old connection is no user
            try:
                probe.bind((host, port))
            except (OSError, OverflowError) as error:
                reason = error
                continue
            return int(probe.getsockname()[1])
    what = f"port {wanted}" if wanted is not None else f"a port from {FIRST_PORT} on"
    raise ConfigError(f"the labeling page cannot have {what} on {host} ({reason}); choose with --host and --port")


def can_show() -> bool:
    """Whether this process has a person in front of it, and a screen to open a browser on."""
    screen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.stdout.isatty() and bool(screen)


def check_what(name: str | None, folder: Path | None, *, called: str | None, labels: int | None) -> None:
    """Refuse `prefrl label` without a run or a folder, with both, or with a flag that is about a folder only.

    Raises:
        ConfigError: Says what to type.
    """
    usage = "`prefrl label NAME` shows a run, `prefrl label --clips FOLDER` the videos of a folder"
    if name is None and folder is None:
        raise ConfigError(f"neither a run nor a folder was given: {usage}")
    if name is not None and folder is not None:
        raise ConfigError(f"both the run {name!r} and --clips {folder} were given: {usage} (--name names its run)")
    for flag, value in (("--name", called), ("--labels", labels)):
        if folder is None and value is not None:
            more = f"; `prefrl resume {name} --labels {labels}` for a run that trains" if flag == "--labels" else ""
            raise ConfigError(
                f"{flag} {value} is for the videos of a folder: add --clips FOLDER in place of {name}{more}"
            )


def check_labeling(db: Database, run_name: str) -> str:
    """Whether people can compare clips of a run; a hint for them, or an empty string.

    Raises:
        ConfigError: The run asks for no comparisons.
        StoreError: There is no such run.
    """
    run = get_run(db, run_name)
    if is_clips(run):
        return ""
    refuse_unasked(run)
    if "renderer" in present_roles(db, run.id):
        return ""
    return f"nobody draws clips of run {run_name!r} now; `prefrl worker {run_name} --role renderer` does"


def refuse_unasked(run: Run) -> None:
    """Refuse what only a run can do that asks for comparisons.

    Raises:
        ConfigError: The run learns from the true reward, or from one that stays as it is.
    """
    reward = from_dict(run.config).reward
    if reward.source == "true":
        raise ConfigError(f"run {run.name!r} learns from the true reward (reward.source true): nothing is compared")
    if reward.source == "frozen":
        raise ConfigError(
            f"run {run.name!r} learns from a reward that stays as it is (reward.source frozen, from {reward.origin}): "
            "nothing is compared"
        )


def serve_page(url: str, run_name: str, options: PageOptions, parent: int | None = None) -> None:
    """Serve the labeling page of a run until someone stops it.

    Args:
        url: The database's URL.
        run_name: The run.
        options: Where, and whether to open a browser.
        parent: Process id of the supervisor, whose death ends this process, or None.

    Raises:
        ConfigError: The app is not installed, or the port is in use.
    """
    check_page()
    port = free_port(options.host, options.port)
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True, name="parent").start()
    serve: Callable[..., object] = import_module("labeling_app.serve").serve  # prefrl itself never depends on the app
    serve(url, run_name, host=options.host, port=port, open_browser=options.browser)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGTERM)  # the page, and whatever it has started


class Page:
    """The labeling page of a supervised run. Its death ends nothing: answers that it has taken are in the database.

    Args:
        url: The database's URL, password included.
        run_name: The run.
        folder: Where its log goes.
        options: Where to serve it; the same port after each death, or open pages would not find it again.
    """

    def __init__(self, url: str, run_name: str, folder: Path, options: PageOptions) -> None:
        self.url, self.run_name, self.log = url, run_name, folder / "label.log"
        self.host, self.port = options.host, free_port(options.host, options.port)
        self._browser, self._n_deaths, self._started = options.browser, 0, 0.0
        self._ended = False  # and this death is counted
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What to open in a browser of this machine."""
        host = "localhost" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "prefrl", "label", self.run_name, "--host", self.host]
        command += ["--port", str(self.port), "--parent", str(os.getpid())]
        if not self._browser:
            command.append("--no-browser")
        self._browser = False  # once
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PREFRL_DB": self.url},  # not a flag: a password would show in the process list
                start_new_session=True,
            )
        self._started, self._ended = time.monotonic(), False

    def look(self) -> str:
        """Start it again where it has died, after a pause; what has happened, in words, or an empty string."""
        if self._process is None or self._process.poll() is None:
            return ""
        lasted = time.monotonic() - self._started
        if not self._ended:
            self._ended, self._n_deaths = True, 1 if lasted > CALM_AFTER_S else self._n_deaths + 1
        if self._n_deaths < MAX_DEATHS and lasted < BACK_OFF_S * 2 ** (self._n_deaths - 1):
            return ""
        words = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        message = f"the labeling page ended with exit code {self._process.returncode}"
        message += f": {words[-1]}" if words else ""
        if self._n_deaths >= MAX_DEATHS:
            self._process = None
            return f"{message}; `prefrl label {self.run_name}` opens it once the cause is mended ({self.log})"
        self.start()
        return f"{message}; started again"

    def stop(self) -> None:
        """End it and what it has started, politely first."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_WITHIN_S)
