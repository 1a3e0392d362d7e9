"""When the rollout role exchanges, saves and ends: in agent steps, whatever the learner and the environments."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from prefrl.config import RunConfig
from prefrl.resolve import resolve
from prefrl.reward_model.ensemble import tensors_to_bytes
from prefrl.reward_model.published import new_ensemble
from prefrl.rollout.pace import learning_starts, max_reward_age, rollout_size, sync_steps
from prefrl.rollout.role import RolloutRole
from prefrl.run.create import extend, new_run, prepare
from prefrl.settings import from_dict
from prefrl.store.checkpoints import list_checkpoints
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.rewards import newest_version, publish
from prefrl.store.segments import load_segments, recent_segment_ids

SMALL = {"policy_kwargs": {"net_arch": [8]}}


def settings(learner="ppo", **policy) -> RunConfig:
    kwargs = SMALL if learner == "a2c" else {**SMALL, "batch_size": 32, "n_epochs": 1}
    return from_dict(
        {
            "env": {"id": "pendulum", "horizon": 50},
            "policy": {"learner": learner, "n_steps": 32, "sync_every": 64, "kwargs": kwargs, **policy},
            "label": {"budget": 32},  # 8 at first, 8 * 15 steps: learning starts at 120, rounded up
            "query": {"segments_per_rollout": 4},
            "reward": {"max_age": 10_000},  # no reward role here publishes new ones
        }
    )


class Alone:
    """No other roles: an untrained reward is published at the first exchange, and all calls are noted."""

    def __init__(self, db, run, stop_at=None):
        self.db, self.run, self.stop_at = db, run, stop_at
        self.exchanged, self.steps = [], 0

    def beat(self, env_steps, state):
        self.steps, self.state = env_steps, state

    def exchange(self):
        self.exchanged.append(self.steps)
        if not newest_version(self.db, self.run.id):
            tensors = new_ensemble(self.run).to_tensors()
            publish(self.db, self.run.id, tensors_to_bytes(tensors), last_seq=0, env_steps=0, metrics={})

    def wait(self):
        raise AssertionError("there is nothing to wait for")

    def stopping(self):
        return self.stop_at is not None and self.role.model.num_timesteps >= self.stop_at


@pytest.fixture
def db(sqlite_url):
    with Database.create(sqlite_url) as database:
        yield database


def make_run(db, config, name="pace"):
    return new_run(db, name, *prepare(config))


def go(db, run, stop_at=None):
    around = Alone(db, run, stop_at)
    around.role = RolloutRole(db, run, around)
    around.role.run_to_end()
    return around


@pytest.mark.parametrize(
    ("policy", "size", "sync"),
    [
        ({"n_steps": 32, "n_envs": 1, "sync_every": 64}, 32, 64),
        ({"n_steps": 32, "n_envs": 4, "sync_every": 64}, 128, 128),
        ({"n_steps": 5, "n_envs": 2, "sync_every": 64}, 10, 70),
        ({"n_steps": 5, "n_envs": 2, "sync_every": 1}, 10, 10),
        ({"n_steps": 1024, "n_envs": 3, "sync_every": 2048}, 3072, 3072),
        ({"n_steps": 32, "n_envs": 2, "sync_every": 129}, 64, 192),
    ],
)
def test_sync_every_is_rounded_up_to_whole_rollouts(policy, size, sync):
    config = settings(**policy)
    assert rollout_size(config.policy) == size
    assert sync_steps(config.policy) == sync


@pytest.mark.parametrize(
    ("changes", "starts"),
    [
        ({"policy": {"steps": 10_000}}, 128),  # 120 in rollouts of 64
        ({"policy": {"steps": 10_000, "n_envs": 4}}, 128),
        ({"policy": {"steps": 10_000, "n_envs": 1}}, 128),
        ({"policy": {"steps": 10_000, "n_steps": 5}}, 120),
        ({"policy": {"steps": 200}}, 64),  # at most half of the run
        ({"policy": {"steps": 100}}, 64),  # but one rollout
        ({"policy": {"steps": 10_000}, "label": {"budget": 700}}, 2_688),  # 175 * 15 = 2625
        ({"policy": {"steps": 10_000}, "label": {"schedule": "upfront"}}, 512),  # 32 * 15 = 480
        ({"policy": {"steps": 10_000}, "reward": {"source": "true"}}, 0),
    ],
)
def test_the_policy_is_untrained_for_as_long_as_the_first_comparisons_need(changes, starts):
    config = settings()
    for section, values in changes.items():
        config = dataclasses.replace(config, **{section: dataclasses.replace(getattr(config, section), **values)})
    assert learning_starts(resolve(config)) == starts


def test_a2c_exchanges_at_its_pace_and_not_after_each_five_steps(db):
    run = make_run(db, settings("a2c", n_steps=5, n_envs=2, steps=500, sync_every=64))
    around = go(db, run)
    assert around.exchanged == [120, 190, 260, 330, 400, 470, 500], "start, then every 70, and the end"
    made = load_segments(db, recent_segment_ids(db, run.id, 1000)).values()
    assert sorted({s.env_steps for s in made}) == [70, *around.exchanged], "cut every 70 steps at first, too"
    # 16 are twice the first comparisons; of 46 possible starts of each environment, 21 end within the first 35 steps
    assert Counter(s.env_steps for s in made if s.source == "initial") == {70: 7, 120: 9}
    assert {s.source for s in made if s.env_steps > 120} == {"policy"}
    n_each = Counter(s.env_steps for s in made if s.source == "policy")
    assert n_each == dict.fromkeys(around.exchanged[1:], 4), "then segments_per_rollout"


def test_the_last_exchange_is_at_the_end_of_the_run_even_off_the_beat(db):
    around = go(db, make_run(db, settings(n_envs=2, steps=512, sync_every=192)))
    assert around.exchanged == [128, 320, 512]
    around = go(db, make_run(db, settings(n_envs=2, steps=450, sync_every=192), "off"))
    assert around.exchanged == [128, 320, 448 + 64], "it ends before 192 more, and what is due is asked all the same"


def saved(db, run):
    return [c.env_steps for c in list_checkpoints(db, run.id)]


@pytest.mark.parametrize("learner", ["ppo", "a2c"])
def test_checkpoints_do_not_depend_on_the_number_of_environments(db, learner):
    steps = {}
    for n_envs in (1, 4):
        config = settings(learner, n_envs=n_envs, steps=1024, checkpoint_every=256, sync_every=128)
        run = make_run(db, config, f"{learner}-{n_envs}")
        go(db, run)
        steps[n_envs] = saved(db, run)
        rollout = rollout_size(config.policy)
        gaps = [b - a for a, b in zip(steps[n_envs][:-1], steps[n_envs][1:], strict=True)]
        assert max(gaps) < 256 + rollout, "a crash loses at most one interval, in whole rollouts"
        assert min(gaps[:-1]) >= 256, "and not every rollout is saved"
    assert len(steps[1]) == len(steps[4])
    assert all(abs(a - b) <= 128 for a, b in zip(steps[1], steps[4], strict=True))


def test_an_interval_shorter_than_a_rollout_saves_each_rollout(db):
    run = make_run(db, settings(n_envs=2, steps=512, checkpoint_every=1))
    go(db, run)
    assert saved(db, run) == [128, 192, 256, 320, 384, 448, 512]


def test_a_run_has_the_steps_it_was_asked_for_and_resuming_adds_none(db):
    run = make_run(db, settings(n_envs=4, steps=1000))
    around = go(db, run)
    assert around.role.finished
    assert around.role.model.num_timesteps == 1024, "whole rollouts: at most one more than asked"
    assert around.steps == 1024
    n_metrics = len(read_metrics(db, run.id))
    again = go(db, run)
    assert again.role.model.num_timesteps == 1024
    assert again.exchanged == []
    assert len(read_metrics(db, run.id)) == n_metrics
    longer = extend(db, run, 1500, None)
    around = go(db, longer)
    assert around.role.model.num_timesteps == 1536, "to a total, not as many on top"
    logged = [m.env_steps for m in read_metrics(db, run.id)]
    assert logged == sorted(logged)
    assert max(logged) == 1536
    assert saved(db, run) == sorted(saved(db, run))


def test_a_short_run_that_becomes_a_long_one_is_not_behind_a_schedule_before_its_start(db):
    run = make_run(db, settings(n_envs=2, steps=200))
    go(db, run, stop_at=100)
    longer = extend(db, run, 10_000, None)  # whose untrained policy would have acted for 128 steps instead of 64
    role = RolloutRole(db, longer, Alone(db, longer))
    assert (role.start, role.model.num_timesteps) == (128, 100)
    role.config = dataclasses.replace(role.config, label=dataclasses.replace(role.config.label, max_lag=7))
    assert role.late_answers() == "8 answers behind the schedule", "the first comparisons, of which none is there"


@pytest.mark.parametrize(("asked", "then"), [(0, 64), (9, 9)])
def test_a_run_that_becomes_a_long_one_fits_less_at_each_exchange_unless_told_otherwise(db, asked, then):
    config = settings(steps=1000)
    run = make_run(db, dataclasses.replace(config, reward=dataclasses.replace(config.reward, fit_steps=asked)))
    assert from_dict(extend(db, run, 60_000, None).config).reward.fit_steps == then


def test_a_run_that_is_stopped_goes_on_from_there(db):
    run = make_run(db, settings(n_envs=2, steps=512, checkpoint_every=10_000))
    around = go(db, run, stop_at=300)
    assert not around.role.finished
    assert around.state == "stopped"
    assert saved(db, run)[-1] == around.role.model.num_timesteps == 300, "in the middle of a rollout"
    around = go(db, run)
    assert around.role.resumed_at == 300
    assert around.role.finished
    assert around.role.model.num_timesteps == 300 + 4 * 64
    assert around.state == "done"
    segments = load_segments(db, recent_segment_ids(db, run.id, 1000)).values()
    assert sum(s.source == "initial" for s in segments) == 16, "the untrained policy is not asked for again"


def test_the_learning_rate_schedule_spans_the_whole_run_over_a_stop(db):
    class Watched(Alone):
        def beat(self, env_steps, state):
            super().beat(env_steps, state)
            if state == "learning":
                self.progress.append((env_steps, self.role.model._current_progress_remaining))

    progress = []
    run = make_run(db, settings(n_envs=2, steps=512))
    for stop_at in (320, None):
        around = Watched(db, run, stop_at)
        around.progress = progress
        around.role = RolloutRole(db, run, around)
        around.role.run_to_end()
    told = [p for p in progress if p[1] < 1.0]  # SB3 says 1 before the first rollout of a process is through
    assert progress[0] == (192, 1.0)
    assert told == [(steps, 1 - (steps - 64) / 512) for steps, _ in told], "as of the end of the rollout before"
    assert [steps for steps, _ in told] == [256, 448, 512]


def test_stopping_while_the_untrained_policy_acts_writes_nothing_half(db):
    run = make_run(db, settings(n_envs=2, steps=512))
    around = Alone(db, run)
    around.role = RolloutRole(db, run, around)
    around.stopping = lambda: around.role.recorder.n_env_steps >= 40
    around.exchange = lambda: None
    around.role.run_to_end()
    assert saved(db, run) == []
    around = go(db, run)
    assert around.exchanged[0] == 128
    assert around.role.finished


@pytest.mark.parametrize(
    ("max_age", "steps", "expected"),
    [(0, 300_000, 10_000), (5000, 300_000, 5000), (0, 3000, 1024), (10, 300_000, 1024)],
)
def test_a_reward_may_be_a_thirtieth_of_the_run_old_but_at_least_one_exchange(max_age, steps, expected):
    config = resolve(from_dict({"policy": {"steps": steps, "sync_every": 1024}, "reward": {"max_age": max_age}}))
    assert max_reward_age(config) == expected
