"""A run with pairs to compare, clips that tell which segment they show, and a browser."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray

from labeling_app.session import LEASE_MS, Labeler
from prefrl.segments.video import encode_clip
from prefrl.store import clips, comparisons, queue, runs, segments
from prefrl.store.engine import Database
from prefrl.store.schema import lease, query
from prefrl.types import Comparison, Segment
from tests.app.screen import CHROMIUM, SPY, Screen, Server, free_port, harmless

BITS, CELL, SIZE = 8, 16, 128  # the number of a segment, drawn as black and white cells in the top row


@dataclass(frozen=True)
class Desk:
    """A database with a run whose segments are numbered 0, 1, 2, …"""

    db: Database
    run: runs.Run
    ids: list[int]

    def propose(self, n: int) -> list[int]:
        """The next of the pairs (0, 1), (2, 3), … of the segments, their clips drawn: no two neighbours look alike."""
        size, first = len(self.ids), sum(self.counts().values())
        pairs = [(self.ids[2 * i % size], self.ids[(2 * i + 1) % size]) for i in range(first, first + n)]
        made = queue.propose(self.db, self.run.id, pairs, reward_version=77, env_steps=4321, scores=[0.123456] * n)
        self.draw()
        return made

    def draw(self) -> None:
        while wanted := clips.claim_clips(self.db, self.run.id, 500):
            for id_ in wanted:
                clips.store_clip(self.db, id_, coded_clip(self.ids.index(id_)), {})

    def labeler(self, annotator: str = "ann", tab: str = "", *, lease_ms: int = LEASE_MS, **rules: float) -> Labeler:
        """A session, where the owner has settled these rules of `label` since."""
        run = next(run for run in runs.list_runs(self.db) if run.id == self.run.id)
        run = dataclasses.replace(run, config={**run.config, "label": {**run.config["label"], **rules}})
        return Labeler(self.db, run, annotator, tab, lease_ms)

    def counts(self) -> dict[str, int]:
        return queue.counts(self.db, self.run.id)

    def rows(self) -> list[Comparison]:
        return comparisons.tail(self.db, self.run.id)

    def standing(self) -> list[Comparison]:
        return comparisons.active(self.rows())

    def shown(self, token: str) -> tuple[int, int]:
        """Numbers of the segments that a lease shows left and right."""
        columns = (query.c.segment_1, query.c.segment_2, lease.c.shown_left)
        with self.db.read() as connection:
            statement = sa.select(*columns).join_from(lease, query).where(lease.c.token == token)
            one, two, left = connection.execute(statement).one()
        pair = (self.ids.index(one), self.ids.index(two))
        return pair if left == 1 else pair[::-1]

    def preferred(self, row: Comparison) -> int | None:
        """Number of the segment that a row holds to be better; None for a tie and for no answer."""
        if row.mu in (None, 0.5):
            return None
        return self.ids.index(row.segment_1 if row.mu == 1 else row.segment_2)


@functools.cache
def coded_clip(number: int, n_frames: int = 20) -> bytes:
    frames = [coded_frame(number, i) for i in range(n_frames)]
    return encode_clip(frames, 20)


def coded_frame(number: int, i: int) -> NDArray[np.uint8]:
    frame = np.full((SIZE, SIZE, 3), 60, np.uint8)
    for bit in range(BITS):
        frame[:CELL, bit * CELL : (bit + 1) * CELL] = 255 if number >> bit & 1 else 0
    x = (4 * i) % (SIZE - 24)
    frame[60:84, x : x + 24] = (230, 120, 40)
    return frame


def build_desk(db: Database, n_segments: int = 24, budget: int = 200, name: str = "cheetah") -> Desk:
    config = {"label": {"budget": budget}, "env": {"id": "cheetah"}}
    run = runs.create_run(db, name, config, {})
    some = [Segment(np.full((5, 3), i, np.float32), np.zeros((5, 2)), np.zeros((5, 4))) for i in range(n_segments)]
    ids = segments.add_segments(db, run.id, some, [np.full(5, float(i)) for i in range(n_segments)])
    return Desk(db, run, ids)


@pytest.fixture
def desk(db: Database) -> Desk:
    return build_desk(db)


@pytest.fixture(scope="module")
def make_desk() -> Callable[..., Desk]:
    return build_desk


@pytest.fixture
def entry() -> Callable[..., dict[str, object]]:
    """Makes entries as the browser sends them."""
    numbers = itertools.count()

    def make(pair: object, kind: str = "left", **more: object) -> dict[str, object]:
        return {
            "id": f"client-made-{next(numbers):04d}",
            "kind": kind,
            "token": pair.token,
            "query_id": pair.query_id,
            "replaces": pair.replaces,
            "response_ms": 1234,
            "view": {"loops": 2, "replays": 0, "speed": 1, "wait_ms": 31},
            **more,
        }

    return make


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    missing = None if Path(CHROMIUM).exists() else "no chromium: apt-get install chromium"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "no playwright: pip install playwright"
    if missing:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, make_desk: Callable[..., Any], browser: Any) -> Iterator[Any]:
    """One database and one server for most of the tests; each has an annotator of its own."""
    folder = tmp_path_factory.mktemp("served")
    url = f"sqlite:///{folder}/test.db"
    with Database.create(url) as db:
        desk = make_desk(db, n_segments=200)
        server = Server(url, free_port(), folder / "log")
        server.start()
        try:
            yield desk, server
        finally:
            server.kill()
    assert "Traceback" not in server.log.read_text()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Screen]]:
    """Opens pages; at the end none may have complained."""
    screens, contexts = [], []

    def begin(server: Server, name: str, tab: str = "", **options: Any) -> Screen:
        contexts.append(browser.new_context(locale="en-US", **options))
        if tab:  # it is the tab of this name, loaded anew
            contexts[-1].add_init_script(f"sessionStorage.setItem('prefrl.tab', '{tab}')")
        contexts[-1].add_init_script(SPY)  # for what a page opens, too
        page = contexts[-1].new_page()
        screen = Screen(page)
        screens.append(screen)
        page.on("console", lambda m: m.type in ("error", "warning") and screen.complaints.append(f"console: {m.text}"))
        page.on("pageerror", lambda error: screen.complaints.append(f"error: {error}"))
        page.on("requestfailed", lambda r: screen.complaints.append(f"failed: {r.url} {r.failure}"))
        page.on("response", lambda r: r.status >= 400 and screen.complaints.append(f"{r.status}: {r.url}"))
        page.goto(f"{server.where}/?name={name}")
        return screen

    yield begin
    complaints = [line for screen in screens for line in screen.complaints if not harmless(line)]
    for context in contexts:
        context.close()
    assert not complaints
