"""`prefrl label --clips` in a real browser: each kind of file plays, and the names in the export are those shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")

from prefrl.store.engine import Database
from prefrl.transfer import export_comparisons
from tests.app.screen import Screen, Server, free_port
from tests.clip_files import video

pytestmark = pytest.mark.xdist_group("browser")
LABEL = (
    "import sys; from prefrl.cli import main; "
    "main(['label', '--no-browser', '--clips', {!r}, '--db', sys.argv[1], '--port', sys.argv[2]])"
)
WIDTHS = {"a late index.mp4": 64, "b.mp4": 80, "c.webm": 96, "d.webm": 112}  # a file is known by the width of its video
PLAYS = "() => spy.seen() && spy.playing(spy.pair())"
WIDE = "() => [...spy.pair().querySelectorAll('video')].map((v) => v.videoWidth)"


def test_every_pair_plays_and_is_stored_under_its_names(tmp_path: Path, open_page: Callable[..., Screen]) -> None:
    folder = tmp_path / "cats"
    folder.mkdir()
    kinds: dict[str, dict[str, Any]] = {
        "a late index.mp4": {},
        "b.mp4": {"movflags": "+faststart"},
        "c.webm": {"codec": "libvpx-vp9", "container": "webm"},
        "d.webm": {"codec": "libvpx", "container": "webm"},
    }
    for name, how in kinds.items():
        (folder / name).write_bytes(video(60, width=WIDTHS[name], n_frames=20, **how))
    command = (sys.executable, "-c", LABEL.format(str(folder)))
    server = Server(f"sqlite:///{tmp_path}/clips.db", free_port(), tmp_path / "log", command)
    server.start()
    try:
        screen = open_page(server, "ann")
        seen: list[list[int]] = []
        for n in range(6):
            screen.page.wait_for_function(PLAYS)
            screen.page.wait_for_timeout(350)  # an answer needs a look
            seen.append(screen.page.evaluate(WIDE))
            screen.press("ArrowLeft" if seen[-1][0] > seen[-1][1] else "ArrowRight")
            screen.shows("line", f"{n + 1} of 6")
        screen.page.get_by_text("All 6 comparisons are there").wait_for()
    finally:
        server.kill()
    assert "Traceback" not in server.log.read_text()
    with Database.open(server.url, readonly=True) as db:
        assert export_comparisons(db, "cats", tmp_path / "cats.jsonl") == 6
    rows = [json.loads(line) for line in (tmp_path / "cats.jsonl").read_text().splitlines()]
    assert [[WIDTHS[row["left"]], WIDTHS[row["right"]]] for row in rows] == seen
    assert [WIDTHS[row["preferred"]] for row in rows] == [max(pair) for pair in seen]
    assert {row["annotator"] for row in rows} == {"ann"}
