"""The renderer role: real segments become clips, what cannot be drawn says why, and nothing stops it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv

from prefrl.config import EnvConfig, LabelConfig, RunConfig
from prefrl.envs.make import make_env
from prefrl.errors import ConfigError, EnvError
from prefrl.resolve import resolve
from prefrl.segments import role as module
from prefrl.segments.recorder import SegmentRecorder
from prefrl.segments.role import BATCH, RendererRole, be_polite
from prefrl.segments.video import probe_video
from prefrl.settings import to_dict
from prefrl.store.clips import claim_clips, clip_counts, clip_states, load_clip
from prefrl.store.engine import Database
from prefrl.store.metrics import events
from prefrl.store.queue import lease, propose
from prefrl.store.runs import Run, create_run
from prefrl.store.segments import add_segments, load_segments
from prefrl.types import Segment

T = 4


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database.create(f"sqlite:///{tmp_path}/clips.db") as database:
        yield database


@pytest.fixture(autouse=True)
def _without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")


def make_run(db: Database, task: str) -> Run:
    config = resolve(RunConfig(env=EnvConfig(id=task, segment_steps=T), label=LabelConfig(oracle="none")))
    return create_run(db, task, to_dict(config), {})


def act(task: str, n: int) -> list[Segment]:
    """``n`` segments of random actions."""
    env = make_env(task)
    env.action_space.seed(0)
    segments = []
    for number in range(n):
        obs, info = env.reset(seed=number)
        steps = []
        for _ in range(T):
            action = env.action_space.sample()
            steps.append((obs, action, info["state"]))
            obs, _, _, _, info = env.step(action)
        arrays = [np.stack([step[i] for step in steps]) for i in range(3)]
        segments.append(Segment(*arrays, episode=number))
    env.close()
    return segments


def ask(db: Database, run: Run, segments: list[Segment]) -> list[int]:
    """Each segment is compared with the one after it."""
    ids = add_segments(db, run.id, segments, None)
    propose(db, run.id, list(zip(ids[::2], ids[1::2], strict=True)))
    return ids


def draw_all(role: RendererRole) -> int:
    n = 0
    while role.step():
        n += 1
    return n


def test_the_clips_of_a_game_are_played_again_and_a_damaged_state_stops_nothing(db: Database) -> None:
    run = make_run(db, "pong")
    recorder = SegmentRecorder(DummyVecEnv([lambda: make_env("pong")]), T, 40)
    recorder.seed(0)
    recorder.reset()
    rng = np.random.default_rng(0)
    for _ in range(40):
        recorder.step(rng.integers(6, size=1))
    segments, _ = recorder.cut(4, rng, env_steps=0, source="policy")
    assert segments[1].states is not None
    segments[1] = dataclasses.replace(segments[1], states=segments[1].states[:, :5000])
    ids = ask(db, run, segments)
    role = RendererRole(db, run)
    assert draw_all(role) == 4
    states = clip_states(db, ids)
    assert [states[i].state for i in ids] == ["ready", "failed", "ready", "ready"]
    assert "5000 bytes are not a state of pong" in (states[ids[1]].reason or "")
    for i in (ids[0], *ids[2:]):
        video = load_clip(db, i)
        assert video is not None
        info = probe_video(video)
        assert (info.width, info.height, info.fps) == (320, 420, 15)
        assert info.n_frames == T + 6, "and the last picture for 0.4 s more"
    role.close()


@pytest.mark.parametrize(("task", "fps"), [("hopper", 40), ("pendulum", 10), ("backflip-hopper", 80)])
def test_the_clips_of_open_queries_are_drawn(db: Database, task: str, fps: int) -> None:
    run = make_run(db, task)
    role = RendererRole(db, run)
    assert not role.step()
    assert role.waiting_for() == "queries"
    ids = ask(db, run, act(task, 6))
    assert not lease(db, run.id, "ann", clips=True)
    assert role.step()
    assert clip_counts(db, run.id) == {"pending": BATCH - 1, "ready": 1, "failed": 0, "missing": 6 - BATCH}
    assert role.step()
    assert len(lease(db, run.id, "ann", n=9, clips=True)) == 1, "the oldest query can be shown before all are drawn"
    assert draw_all(role) == 4
    assert not role.step()
    assert clip_counts(db, run.id) == {"pending": 0, "ready": 6, "failed": 0, "missing": 0}
    videos = [load_clip(db, i) for i in ids]
    assert len(set(videos)) == 6
    info = probe_video(videos[0] or b"")
    assert (info.codec, info.width, info.height, info.fps, info.faststart) == ("h264", 256, 256, fps, True)
    assert info.n_frames == T + round(0.4 * fps)
    assert not events(db, run.id)
    role.close()
    role.close()


def test_a_clip_that_cannot_be_drawn_says_why_and_stops_nothing(db: Database) -> None:
    run = make_run(db, "pendulum")
    good = act("pendulum", 6)
    blind = [dataclasses.replace(s, obs=s.obs + 1, states=None) for s in good[:2]]
    odd = [dataclasses.replace(s, obs=s.obs + 2, states=np.zeros((T, 3))) for s in good[:2]]
    ids = ask(db, run, [good[0], blind[0], blind[1], odd[0], good[1], good[2], odd[1], good[3]])
    role = RendererRole(db, run)
    assert draw_all(role) == 8
    states = clip_states(db, ids)
    assert [states[i].state for i in ids] == [
        "ready",
        "failed",
        "failed",
        "failed",
        "ready",
        "ready",
        "failed",
        "ready",
    ]
    assert states[ids[1]].reason == "pendulum recorded no simulator states to draw from"
    assert states[ids[3]].reason == "pendulum has states of shape (T, 4), but these have (4, 3)"
    assert len(lease(db, run.id, "ann", n=9, clips=True)) == 1
    said = [e.message for e in events(db, run.id)]
    assert len(said) == 2, "each reason once"
    assert all(m.startswith("a clip cannot be drawn: pendulum") for m in said)

    ask(db, run, [dataclasses.replace(s, obs=s.obs + 3, states=None) for s in good[:2]])
    again = RendererRole(db, run)
    assert draw_all(again) == 2
    assert len(events(db, run.id)) == 2, "nor by the next process"
    role.close()
    again.close()


def test_what_a_driver_raises_costs_one_clip(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(db, "pendulum")
    ids = ask(db, run, act("pendulum", 4))
    real, calls = module.encode_clip, []

    def encode(frames: list[np.ndarray], fps: float) -> bytes:
        calls.append(fps)
        if len(calls) == 2:
            raise RuntimeError("the driver is lost")
        return real(frames, fps)

    monkeypatch.setattr(module, "encode_clip", encode)
    role = RendererRole(db, run)
    draw_all(role)
    states = clip_states(db, ids)
    assert [states[i].state for i in ids] == ["ready", "failed", "ready", "ready"]
    assert states[ids[1]].reason == "RuntimeError: the driver is lost"
    role.close()


def test_where_nothing_can_be_drawn_the_role_ends_with_one_line(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(db, "pendulum")
    ask(db, run, act("pendulum", 2))
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(EnvError, match="clips cannot be drawn with MUJOCO_GL=nonsense") as caught:
        RendererRole(db, run).step()
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("MUJOCO_GL", "egl")

    def no_encoder(*_: object) -> bytes:
        raise ConfigError("video needs the extra `app`")

    monkeypatch.setattr(module, "encode_clip", no_encoder)
    role = RendererRole(db, run)
    with pytest.raises(ConfigError, match="needs the extra"):
        role.step()
    role.close()
    assert clip_counts(db, run.id)["failed"] == 0, "it is no fault of the clips"
    monkeypatch.undo()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    mended = RendererRole(db, run)
    assert draw_all(mended) == 2, "which the next process draws at once"
    mended.close()


def test_the_claims_of_a_dead_renderer_are_taken_over_at_once(db: Database) -> None:
    run = make_run(db, "pendulum")
    ask(db, run, act("pendulum", 6))
    assert len(claim_clips(db, run.id, BATCH)) == BATCH  # and the process is killed here
    role = RendererRole(db, run)
    assert draw_all(role) == 6
    assert clip_counts(db, run.id)["ready"] == 6
    role.close()


def test_a_claim_that_is_left_behind_later_is_found_in_the_end(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(db, "pendulum")
    role = RendererRole(db, run)
    assert not role.step()
    ask(db, run, act("pendulum", 2))
    claim_clips(db, run.id, 2)
    assert not role.step(), "someone may be drawing it"
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.0)
    real = claim_clips
    monkeypatch.setattr(module, "claim_clips", lambda db, run_id, n: real(db, run_id, n, stale_ms=0))
    assert draw_all(role) == 2
    role.close()


def test_old_clips_go(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRUNE_EVERY", 2)
    monkeypatch.setattr(module, "KEEP", 1)
    run = make_run(db, "pendulum")
    segments = act("pendulum", 6)
    ids = ask(db, run, segments[:4])
    role = RendererRole(db, run)
    assert draw_all(role) == 4
    assert clip_counts(db, run.id)["ready"] == 4, "open queries need them"
    from prefrl.store.queue import expire

    assert expire(db, run.id, before_env_steps=1) == 2
    ids += ask(db, run, segments[4:])
    assert draw_all(role) == 2
    assert sorted(clip_states(db, ids)) == ids[3:], "the newest of those that nobody needs, and those of the open query"
    assert sorted(load_segments(db, ids)) == ids
    role.close()


def test_it_leaves_the_processors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module.os, "nice", asked.append)
    written: list[str] = []
    monkeypatch.setattr(module.Path, "write_text", lambda path, text: written.append(f"{path} {text}"))
    be_polite()
    assert asked == [10]
    assert written == ["/proc/self/autogroup 10"]
