"""A person who labels for long: the pace holds, each answer is stored once, and no process grows."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefrl.config import EnvConfig, LabelConfig, RunConfig
from prefrl.envs.make import make_env
from prefrl.run.create import new_run, prepare
from prefrl.store.comparisons import tail
from prefrl.store.engine import Database
from prefrl.store.queue import propose
from prefrl.store.runs import set_run_state
from prefrl.store.segments import add_segments
from prefrl.types import Segment
from tests.app.screen import KINDS, ROOT, Screen, Server, check, free_port, wait_for_rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
T = 15
SERVE = "import sys; from labeling_app.serve import serve; serve(sys.argv[1], '', port=int(sys.argv[2]))"
# Presses a key as soon as a pair counts as seen, n times: as fast as the page lets anybody.
IN_HASTE = """
async (n) => {
  const until = async (there) => {
    for (const end = performance.now() + 120000; !there(); await new Promise(requestAnimationFrame)) {
      if (performance.now() > end) throw new Error(`no next pair: ${spy.root().textContent}`);
    }
  };
  let before = null;
  for (let i = 0; i < n; i += 1) {
    await until(() => spy.seen() && spy.pair() !== before);
    before = spy.pair();
    await new Promise((next) => setTimeout(next, 310));
    const key = ["ArrowLeft", "ArrowRight", "ArrowDown"][i % 3];
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, code: key, bubbles: true, composed: true }));
    await until(() => spy.pair() !== before);
  }
}
"""
VIDEOS = "document.querySelectorAll('video').length + spy.root().querySelectorAll('video').length"


def test_sixty_pairs_at_the_pace_of_a_person(served: Any, open_page: Callable[..., Screen], capsys: Any) -> None:
    desk, server = served
    n, rng = 60, random.Random(3)
    desk.propose(n + 3)
    screen = open_page(server, "steady")
    codes = screen.watch()
    begun = time.monotonic()
    for key in rng.choices(list(KINDS), k=n):
        screen.page.wait_for_timeout(rng.randint(1200, 2200))  # one look at a clip of 1.5 s, more or less
        screen.press(key)
        codes = screen.watch(codes, ms=0)
    rate = 60 * n / (time.monotonic() - begun)
    rows = wait_for_rows(desk, screen, "steady", n)
    screen.page.wait_for_timeout(3000)  # longer than after which an answer is sent again
    rows = [row for row in desk.rows() if row.annotator == "steady"]
    check(desk, rows, screen.presses())
    assert len({row.query_id for row in rows}) == n
    with capsys.disabled():
        print(f"\n{n} pairs at {rate:.0f} a minute")  # noqa: T201
    assert rate >= 20


@dataclass(frozen=True)
class Sizes:
    """What might grow; memory in MB."""

    videos: int
    nodes: int
    heap: float
    tab: float
    gpu: float
    app: float
    renderer: float


def resident(pid: int) -> float:
    """Memory of a process that is its own: shared libraries apart."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def sizes(screen: Screen, browser: Any, app: int, renderer: int) -> Sizes:
    cdp = screen.page.context.new_cdp_session(screen.page)
    for _ in range(2):
        cdp.send("HeapProfiler.collectGarbage")
    cdp.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}
    cdp.detach()
    whole = browser.new_browser_cdp_session()
    pids: dict[str, list[int]] = {}
    for one in whole.send("SystemInfo.getProcessInfo")["processInfo"]:
        pids.setdefault(one["type"], []).append(one["id"])
    whole.detach()
    return Sizes(
        screen.page.evaluate(VIDEOS),
        int(metrics["Nodes"]),
        metrics["JSHeapUsedSize"] / 2**20,
        max(map(resident, pids["renderer"])),
        sum(map(resident, pids["GPU"])),
        resident(app),
        resident(renderer),
    )


@pytest.fixture
def drawn(tmp_path: Path) -> Iterator[tuple[Database, Server, int]]:
    """A run with 520 open pairs, whose clips a renderer of its own draws; the app; and the renderer's process."""
    url, env = f"sqlite:///{tmp_path}/test.db", make_env("pendulum")
    config = RunConfig(env=EnvConfig(id="pendulum", segment_steps=T), label=LabelConfig(oracle="none", budget=600))
    with Database.create(url) as db:
        run = new_run(db, "long", *prepare(config))
        ids = add_segments(db, run.id, [act(env, number) for number in range(1040)], None)
        env.close()
        propose(db, run.id, list(zip(ids[::2], ids[1::2], strict=True)))
        set_run_state(db, run.id, "running")
        server = Server(url, free_port(), tmp_path / "log", (sys.executable, "-c", SERVE))
        words = [sys.executable, "-m", "prefrl", "worker", "long", "--role", "renderer", "--db", url]
        surroundings = os.environ | {"PYTHONPATH": str(ROOT), "MUJOCO_GL": "egl"}
        with (tmp_path / "renderer").open("wb") as log:
            renderer = subprocess.Popen(words, env=surroundings, cwd=tmp_path, stdout=log, stderr=log)
        try:
            server.start()
            yield db, server, renderer.pid
            assert renderer.poll() is None, (tmp_path / "renderer").read_text()
        finally:
            server.kill()
            renderer.kill()
            renderer.wait()
    assert "Traceback" not in server.log.read_text()


def act(env: Any, number: int) -> Segment:
    rng, (obs, info) = np.random.default_rng(number), env.reset(seed=number)
    steps = []
    for _ in range(T):
        action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        steps.append((obs, action, info["state"]))
        obs, _, _, _, info = env.step(action)
    obs, act, state = (np.stack([step[i] for step in steps]) for i in range(3))
    return Segment(obs, act, state, episode=number)


def test_five_hundred_pairs_without_growth(
    drawn: tuple[Database, Server, int], open_page: Callable[..., Screen], browser: Any, capsys: Any
) -> None:
    db, server, renderer = drawn
    screen = open_page(server, "hasty")
    screen.page.wait_for_selector(".labeler .stage[aria-busy=false]", timeout=120_000)
    seen, begun = [], time.monotonic()
    for done in range(0, 501, 50):
        if done:
            screen.page.evaluate(IN_HASTE, 50)
        deadline = time.monotonic() + 120
        while (n := len(tail(db, 1))) < done:
            assert time.monotonic() < deadline, f"{n} of {done} answers"
            screen.page.wait_for_timeout(100)
        screen.page.wait_for_function(f"spy.seen() && {VIDEOS} === 6", timeout=120_000)  # all that is held ready
        seen.append(sizes(screen, browser, server.process.pid, renderer))
        with capsys.disabled():
            now = seen[-1]
            print(  # noqa: T201
                f"\n{done:4} answers in {time.monotonic() - begun:4.0f} s: {now.videos} videos, {now.nodes} nodes, "
                f"heap {now.heap:.1f} MB; own memory of tab {now.tab:.0f}, media {now.gpu:.0f}, app {now.app:.0f}, "
                f"renderer {now.renderer:.0f} MB",
                end="",
            )
    rows = tail(db, 1)
    assert len(rows) == len({row.query_id for row in rows}) == 500
    assert [row.preference.value for row in rows] == [KINDS[press["key"]] for press in screen.presses()]
    assert all(row.response_ms >= 300 for row in rows)
    warm, end = seen[4], seen[-1]  # 200 answers fill what is kept on purpose
    assert end.nodes <= warm.nodes + 100
    assert end.heap <= warm.heap + 2
    for part in ("tab", "gpu", "app", "renderer"):
        assert getattr(end, part) <= getattr(warm, part) + 16, f"{part} grows"
