"""The app as a process, and a page of it in a real browser: what the browser tests share."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prefrl.types import Comparison

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
ROOT = Path(__file__).parents[2]
SERVE = "import sys; from labeling_app.serve import serve; serve(sys.argv[1], 'cheetah', port=int(sys.argv[2]))"
KINDS = {"ArrowLeft": "left", "ArrowRight": "right", "ArrowDown": "tie", "t": "tie", " ": "incomparable"}
# Runs before the page's own scripts, so its listener is the first to see a key.
SPY = """
window.spy = { presses: [], delays: [], blanks: [] };
spy.root = () => {
  for (const e of document.querySelectorAll("*")) {
    if (e.shadowRoot && e.shadowRoot.querySelector(".labeler")) return e.shadowRoot;
  }
  return null;
};
spy.pair = () => { const root = spy.root(); return root && root.querySelector(".pair:not(.off)"); };
spy.code = (video) => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 128;
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.drawImage(video, 0, 0, 128, 128);
  let code = 0;
  for (let bit = 0; bit < 8; bit += 1) if (pen.getImageData(bit * 16 + 8, 8, 1, 1).data[0] > 128) code += 1 << bit;
  return code;
};
spy.codes = () => { const pair = spy.pair(); return pair ? [...pair.querySelectorAll("video")].map(spy.code) : null; };
spy.seen = () => spy.pair() && spy.root().querySelector(".stage[aria-busy=false]");
spy.playing = (pair) => [...pair.querySelectorAll("video")].every((v) => !v.paused && v.currentTime > 0);
addEventListener("keydown", (event) => {
  const before = spy.pair();
  const begun = performance.now();
  let blank = 0;
  spy.presses.push({ key: event.key, codes: spy.codes(), repeat: event.repeat });
  const look = () => {
    const now = spy.pair();
    if (now !== before && (!now || [...now.querySelectorAll("video")].some((v) => v.readyState < 2))) blank += 1;
    if (now && now !== before && spy.playing(now)) {
      spy.delays.push(performance.now() - begun);
      spy.blanks.push(blank);
    } else if (performance.now() - begun < 3000) requestAnimationFrame(look);
  };
  if (!event.repeat) requestAnimationFrame(look);
}, true);
"""


@dataclass
class Server:
    """The app as a process of its own, on a port that it keeps when it is started again."""

    url: str
    port: int
    log: Path
    command: tuple[str, ...] = (sys.executable, "-c", SERVE)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": ":".join([str(ROOT), *sys.path]), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.log.open("ab") as log:
            command = [*self.command, self.url, str(self.port)]
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=self.log.parent)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.where}/_stcore/health", timeout=5):
                return
            time.sleep(0.1)
        pytest.fail(f"the app did not start: {self.log.read_text()}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    @property
    def where(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class Screen:
    """A page of the app, and all that it complained about."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def press(self, key: str, after_ms: int = 0) -> None:
        self.page.wait_for_timeout(after_ms)
        self.page.keyboard.press("Space" if key == " " else key)

    def text(self, name: str) -> str:
        return str(self.page.locator(f".labeler .{name}").text_content())

    def shows(self, name: str, words: str, seconds: float = 15) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text(name):
            assert time.monotonic() < deadline, f"{name}: {self.text(name)!r} instead of {words!r}"
            self.page.wait_for_timeout(50)

    def watch(self, beside: list[int] | None = None, ms: int = 320) -> list[int]:
        """Waits until another pair is seen, and has been for as long as an answer needs; returns its codes."""
        script = "(old) => spy.seen() && String(spy.codes()) !== String(old)"
        self.page.wait_for_function(script, arg=beside)
        self.page.wait_for_timeout(ms)
        return list(self.page.evaluate("spy.codes()"))

    def presses(self) -> list[dict[str, Any]]:
        return list(self.page.evaluate("spy.presses"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def harmless(line: str) -> bool:
    """A browser that lets go of a video breaks off what it was loading."""
    return line.startswith("failed: ") and "/clips/" in line and line.endswith("net::ERR_ABORTED")


def sides(desk: Any, row: Comparison) -> list[int]:
    pair = [desk.ids.index(row.segment_1), desk.ids.index(row.segment_2)]
    return pair if row.shown_left == 1 else pair[::-1]


def rows_of(desk: Any, name: str) -> list[Comparison]:
    return [row for row in desk.rows() if row.annotator == name]


def wait_for_rows(desk: Any, screen: Screen, name: str, n: int, seconds: float = 20) -> list[Comparison]:
    deadline = time.monotonic() + seconds
    while len(rows_of(desk, name)) < n:
        assert time.monotonic() < deadline, f"{len(rows_of(desk, name))} of {n} answers; {screen.text('line')}"
        screen.page.wait_for_timeout(50)
    return rows_of(desk, name)


def check(desk: Any, rows: list[Comparison], presses: list[dict[str, Any]]) -> None:
    """Row by row: the pair that was on the screen, its sides, and the key."""
    assert len(rows) == len(presses)
    for row, press in zip(rows, presses, strict=True):
        assert sides(desk, row) == press["codes"]
        assert row.preference.value == KINDS[press["key"]]
