"""Async runs with people as annotators: a scripted one in this process looks at clips, and answers or goes away."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prefrl.run.people import PageOptions, free_port
from prefrl.segments.video import probe_video
from prefrl.store.clips import clip_counts, load_clip
from prefrl.store.queue import answer, lease, skip
from prefrl.store.runs import get_run
from prefrl.store.segments import true_returns
from prefrl.types import Answer, Preference

PEOPLE = {"label__oracle": "none"}
GL = {"MUJOCO_GL": "egl"}


class Annotator:
    """Prefers what has the higher true return, and sees nothing but clips that are ready."""

    def __init__(self, cli, name: str = "ann") -> None:
        self.db, self.name, self.n, self.n_skipped = cli.db(), name, 0, 0
        self.run_id = get_run(self.db, "r").id

    def work(self, until: Callable[[], object], *, skipping: int = 0, timeout: float = 150) -> None:
        """Answer until something has happened, or nothing is left to answer and it has."""
        deadline = time.monotonic() + timeout
        while not until():
            assert time.monotonic() < deadline, f"{self.name} has answered {self.n}"
            for one in lease(self.db, self.run_id, self.name, n=2, clips=True):
                if self.n_skipped < skipping:
                    self.n_skipped += 1
                    assert skip(self.db, one.token, self.name)
                    continue
                self.answer(one)
            time.sleep(0.2)  # as often as a page looks; faster takes the processor from the renderer

    def answer(self, one) -> None:
        sides = (one.segment_1, one.segment_2)
        if self.n < 2:
            for side in sides:
                assert probe_video(load_clip(self.db, side) or b"").fps == 10
        worth = true_returns(self.db, sides)
        left, right = (worth[i] for i in (sides if one.shown_left == 1 else sides[::-1]))
        told = Preference.LEFT if left > right else Preference.RIGHT
        answer(self.db, [Answer(one.query_id, one.token, told, self.name, one.token)])
        self.n += 1


def test_a_run_with_people_ends_with_its_whole_budget(cli, whole):
    cli.create(**PEOPLE)
    process = cli.start("resume", "r", **GL)
    first = cli.until(lambda f: f.status.open_queries)
    assert first.status.open_queries == 10 + 8, "the initial ones and a small stock ahead"
    annotator = Annotator(cli)
    annotator.work(lambda: process.poll() is not None, skipping=2)
    ended = cli.end(process)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    whole(facts)
    assert len(facts.comparisons) == 40 == annotator.n
    assert annotator.n_skipped == 2
    assert facts.status.open_queries == 0, "those skipped went where others had been asked in their place"
    assert [r.role for r in facts.status.roles] == ["renderer", "reward", "rollout"]
    assert [r.state for r in facts.status.roles] == ["done"] * 3
    assert facts.status.clips["failed"] == facts.status.clips["missing"] == 0
    assert facts.events == []
    assert not cli.processes()
    shown = cli("status", "r").out
    assert "renderer" in shown
    assert "0 queries wait" in shown


def test_the_policy_waits_for_a_person_who_pauses_and_a_killed_renderer_loses_nothing(cli, whole):
    cli.create(**PEOPLE, label__max_lag=2)
    process = cli.start("resume", "r", **GL)
    annotator = Annotator(cli)
    annotator.work(lambda: cli.facts().versions)

    def waits(facts):
        behind = facts.status.scheduled - facts.status.comparisons > 2  # now; the role's words may be a second old
        return behind and any(r.state.startswith("paused") for r in facts.status.roles)

    paused = cli.until(waits)
    assert "answers behind the schedule" in next(r.state for r in paused.status.roles if r.role == "rollout")
    steps, pid = paused.status.env_steps, paused.pids["renderer"]
    time.sleep(1)
    again = cli.facts()
    assert again.status.env_steps == steps, "it waits for him"
    assert again.status.scheduled - again.status.comparisons > 2

    os.kill(pid, signal.SIGKILL)  # the next ones are still to be drawn
    annotator.work(lambda: process.poll() is not None)
    ended = cli.end(process)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    whole(facts)
    assert annotator.n == 40
    assert "renderer was killed by signal 9; started again" in facts.events
    assert facts.status.clips["pending"] == facts.status.clips["failed"] == 0


def test_a_run_whose_people_have_gone_ends_all_the_same_and_keeps_late_answers(cli):
    cli.create(**PEOPLE, label__max_lag=0, label__initial_fraction=0.1, policy__steps=1500)
    process = cli.start("resume", "r", **GL)
    annotator = Annotator(cli)
    annotator.work(lambda: annotator.n >= 4)
    before, held = annotator.n, []
    while not held:
        held = lease(annotator.db, annotator.run_id, "ann", n=1, clips=True)
        time.sleep(0.2)
    ended = cli.end(process)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    assert facts.status.state == "done"
    assert facts.status.open_queries > 10
    annotator.answer(held[0])
    assert cli.facts().status.comparisons == before + 1, "he comes back to what he had before him"
    longer = cli.start("resume", "r", "--steps", 2500, **GL)
    annotator.work(lambda: longer.poll() is not None)
    assert cli.end(longer).code == 0
    assert cli.facts().status.comparisons == 40


def test_where_nothing_can_be_drawn_the_run_stops_with_one_line(cli):
    cli.create(**PEOPLE)
    ended = cli("resume", "r", MUJOCO_GL="glfw", DISPLAY="", WAYLAND_DISPLAY="")
    assert ended.code == 2
    last = next(line for line in ended.err.splitlines() if "stops: renderer: clips cannot be drawn" in line)
    assert "MUJOCO_GL=glfw" in last
    assert "`prefrl doctor` says which MUJOCO_GL works" in last
    assert cli.facts().status.clips["failed"] == 0
    assert cli.gone()


APP = """
import http.server

def serve(url, run_name, *, host="127.0.0.1", port=None, open_browser=False):
    assert "secret" not in run_name
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{run_name} on {url} {open_browser}".encode())
    http.server.ThreadingHTTPServer((host, port), Page).serve_forever()
"""


@pytest.fixture
def app(cli) -> None:
    """A labeling app of one line."""
    for name, text in (("labeling_app/__init__.py", ""), ("labeling_app/serve.py", APP), ("streamlit.py", "")):
        path = cli.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def look(port: int) -> str:
    import urllib.request

    deadline = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5) as page:
                return str(page.read().decode())
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.usefixtures("app")
def test_human_opens_the_page_and_starts_it_again(cli):
    port = free_port("127.0.0.1")
    flags = ("--labels", 8, "--steps", 1500, "--policy.n_steps", 128, "--policy.sync_every", 256, "--learner", "ppo")
    small = ("--reward.pretrain_steps", 5, "--reward.fit_steps", 1, "--policy.kwargs", "{batch_size=128, n_epochs=1}")
    process = cli.start("run", "one-leg-cheetah", "--name", "r", "--human", "--port", port, *flags, *small, **GL)
    assert look(port) == f"r on {cli.url} False"
    (page,) = [p for p in cli.processes() if b"label" in Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")]
    os.kill(page, signal.SIGKILL)
    assert cli.until(lambda f: any("the labeling page ended" in e for e in f.events))
    assert look(port)
    busy = cli("label", "r", "--port", port)
    assert busy.code == 2
    assert f"cannot have port {port} on 127.0.0.1" in busy.err
    annotator = Annotator(cli)
    with annotator.db.read():
        assert clip_counts(annotator.db, annotator.run_id)["failed"] == 0
    process.send_signal(signal.SIGINT)
    ended = cli.end(process)
    assert ended.code == 130
    assert f"compare clips at http://127.0.0.1:{port}" in ended.out
    assert "prefrl resume r --human" in ended.out
    assert "prefrl eval" not in ended.out, "there is no true return"
    assert cli.gone()

    refused = cli("eval", "r")
    assert refused.code == 2
    assert "one-leg-cheetah has no true reward" in refused.err


@pytest.mark.usefixtures("app")
def test_the_page_does_not_outlive_its_supervisor(cli):
    cli.create(**PEOPLE)
    port = free_port("127.0.0.1")
    process = cli.start("resume", "r", "--human", "--port", port, "--no-browser", **GL)
    assert look(port)
    process.kill()
    assert cli.gone(timeout=20)


def test_options_of_the_page_are_for_this_machine_only_by_default():
    assert PageOptions() == PageOptions("127.0.0.1", None, True)


REFUSED = {
    "an oracle for a task without a true reward": (
        ["run", "backflip-hopper", "--oracle", "true-return"],
        "the oracle 'true-return' compares true rewards, but backflip-hopper has none",
    ),
    "learning from a true reward that is none": (
        ["run", "prefrl/OneLegCheetah-v0", "--reward.source", "true"],
        "reward.source is true, but prefrl/OneLegCheetah-v0 has no true reward",
    ),
    "people and an oracle": (["run", "pendulum", "--human", "--oracle", "skip"], "--human and --oracle skip exclude"),
    "people and nothing to compare": (
        ["run", "pendulum", "--human", "--reward.source", "true"],
        "--human and --reward.source true exclude each other",
    ),
    "people in lockstep": (["run", "pendulum", "--human", "--mode", "lockstep"], "use --mode async"),
    "a renderer without clips": (["worker", "t", "--role", "renderer"], "nothing is compared"),
    "a page without comparisons": (["label", "t"], "nothing is compared"),
    "a page of no run": (["label", "nowhere"], "no run named 'nowhere'"),
    "a page for an oracle": (["resume", "o", "--human"], "run 'o' has the oracle 'true-return' as annotator"),
}


def test_refusals_are_one_line(cli):
    cli.create("o")
    cli.create("t", reward__source="true")
    for what, (words, told) in REFUSED.items():
        ended = cli(*words)
        assert ended.code == 2, what
        assert told in ended.err
        assert len(ended.err.splitlines()) == 1
        assert not ended.out
