"""Whole runs inside one process: the same to the bit for one seed, and going on after any stop.

The golden trace ``tests/golden/lockstep.json`` holds the first rollouts of one run. Where a change is meant to
alter it, write it anew and read the difference before committing it::

    PREFRL_GOLDEN=write pytest tests/process/test_lockstep.py -k golden
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
import types
from collections import Counter
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from prefrl.errors import ConfigError, EnvError, PrefrlError, RewardError
from prefrl.evaluate import evaluate
from prefrl.oracle.role import OracleRole
from prefrl.reward_model.ensemble import tensors_from_bytes
from prefrl.reward_model.held_out import evidence, from_metrics
from prefrl.reward_model.role import RewardRole
from prefrl.reward_model.schedule import n_initial, n_scheduled
from prefrl.rollout.pace import learning_starts
from prefrl.run.create import check_start, extend, new_run, prepare
from prefrl.run.lockstep import Lockstep, run_lockstep
from prefrl.run.status import read_status
from prefrl.run.view import line
from prefrl.settings import from_dict
from prefrl.store import queue
from prefrl.store.checkpoints import list_checkpoints, load_checkpoint
from prefrl.store.comparisons import n_counted, tail
from prefrl.store.engine import Database
from prefrl.store.held_out import held_out_pairs
from prefrl.store.metrics import events, read_metrics
from prefrl.store.queue import counts
from prefrl.store.rewards import load_reward, reward_versions
from prefrl.store.runs import get_run
from prefrl.store.segments import load_segments, recent_segment_ids, true_returns
from prefrl.store.workers import claim, release, workers
from prefrl.types import TOLD, Answer, Preference

GOLDEN = Path(__file__).parents[1] / "golden" / "lockstep.json"


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def settings(seed=0, **changes):
    """6 rollouts of 128 steps, the first untrained; 24 comparisons, 6 of them at first."""
    values = {
        "env": {"id": "pendulum"},
        "policy": {
            "learner": "ppo",
            "steps": 768,
            "n_envs": 2,
            "n_steps": 64,
            "sync_every": 128,
            "checkpoint_every": 256,
            "kwargs": {"batch_size": 64, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]}},
        },
        "reward": {"pretrain_steps": 20, "fit_steps": 5, "batch_size": 16},
        "query": {"segments_per_rollout": 12, "pool": 24},
        "label": {"budget": 24},
        "seed": seed,
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        values[section] = {**values[section], key: value} if key else value
    return from_dict(values)


def make(folder, config, name="run"):
    db = Database.create(f"sqlite:///{folder}/{name}.db")
    return db, new_run(db, name, *prepare(config))


def facts(db, run):
    """Everything a run leaves behind, but for times and the random tokens of leases."""
    return {
        "policies": [(c.env_steps, c.sha256, c.meta) for c in list_checkpoints(db, run.id)],
        "rewards": [(v.version, v.last_seq, v.env_steps, repr(v.metrics)) for v in reward_versions(db, run.id)],
        "weights": load_reward(db, run.id)[1],
        "comparisons": [
            (c.seq, c.segment_1, c.segment_2, c.preference, c.mu, c.shown_left, c.env_steps, c.detail)
            for c in tail(db, run.id)
        ],
        "segments": {
            id_: (s.digest, s.env_index, s.episode, s.start, s.env_steps, s.source)
            for id_, s in load_segments(db, recent_segment_ids(db, run.id, 10_000)).items()
        },
        "metrics": [(m.role, m.env_steps, m.name, repr(m.value)) for m in read_metrics(db, run.id)],
        "queries": counts(db, run.id),
    }


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A run from beginning to end."""
    db, run = make(tmp_path_factory.mktemp("reference"), settings())
    assert run_lockstep(db, run)
    yield db, run, facts(db, run)
    db.close()


def test_one_seed_is_one_run_to_the_bit(reference, tmp_path):
    db, run = make(tmp_path, settings())
    assert run_lockstep(db, run)
    again = facts(db, run)
    for what, expected in reference[2].items():
        assert again[what] == expected, what
    db.close()


def test_only_the_ablation_that_is_told_true_returns_is_told_them(reference, tmp_path):
    db, run = make(tmp_path, settings(reward__objective="target"))
    assert run_lockstep(db, run)
    rows = tail(db, run.id)
    true = true_returns(db, {i for c in rows for i in (c.segment_1, c.segment_2)})
    assert len(rows) == 24
    for row in rows:
        assert row.detail[TOLD] == pytest.approx([true[row.segment_1], true[row.segment_2]])
    assert all(TOLD not in c.detail for c in tail(reference[0], reference[1].id))
    db.close()


def test_true_returns_are_told_by_the_oracle_that_has_them(tmp_path):
    for oracle in ("none", "equal", "tests.process.test_lockstep:nobody"):
        with pytest.raises(ConfigError, match=r"label.oracle is .*: only the oracle true-return tells them"):
            prepare(settings(reward__objective="target", label__oracle=oracle))


def test_another_seed_is_another_run(reference, tmp_path):
    db, run = make(tmp_path, settings(seed=1))
    assert run_lockstep(db, run)
    other = facts(db, run)
    for what in ("policies", "weights", "comparisons", "segments", "metrics"):
        assert other[what] != reference[2][what], what
    assert [s[1:] for s in other["segments"].values()] != [s[1:] for s in reference[2]["segments"].values()]
    db.close()


def test_a_run_ends_with_what_it_was_to_do(reference):
    db, run, _ = reference
    status = read_status(db, run.name)
    assert (status.state, status.env_steps, status.total_steps) == ("done", 768, 768)
    assert status.comparisons == status.scheduled == status.budget == 24
    assert status.open_queries == 0
    assert not any(role.alive for role in status.roles), "the role is given back"
    config = from_dict(run.config)
    start = learning_starts(config)
    assert start == 128
    due = Counter(c.env_steps for c in tail(db, run.id))
    total = 0
    for step in range(128, 769, 128):
        total += due[step]
        assert total == n_scheduled(config.label, step - start, 768 - start), step
    assert due[128] == n_initial(config.label) == 6
    assert [v.env_steps for v in reward_versions(db, run.id)] == [128, 256, 384, 512, 640, 768]
    assert [v.last_seq for v in reward_versions(db, run.id)][-1] == 24, "the last version has seen all comparisons"


def test_the_first_reward_is_there_before_the_policy_learns(reference):
    db, run, _ = reference
    used = [m.value for m in read_metrics(db, run.id, ["reward_version"])]
    assert used == [1, 2, 3, 4, 5], "each rollout is rewarded by the version before it, and by one only"
    first, payload = load_checkpoint(db, run.id, list_checkpoints(db, run.id)[0].id)
    assert (first.env_steps, first.meta["n_updates"]) == (128, 0)
    assert not any(name.startswith("optimizer.") for name in tensors_from_bytes(payload))


def test_answers_agree_with_the_true_returns_and_sides_vary(reference):
    db, run, _ = reference
    truth = true_returns(db, recent_segment_ids(db, run.id, 10_000))
    for c in tail(db, run.id):
        one, two = truth[c.segment_1], truth[c.segment_2]
        assert c.mu == (0.5 if one == two else float(one > two))
    sides = {c.seq: c.shown_left for c in tail(db, run.id)}
    firsts = [sides[v.last_seq + 1] for v in reward_versions(db, run.id) if v.last_seq + 1 in sides]
    assert set(sides.values()) == {1, 2}
    assert set(firsts) == {1, 2}, "nor is the first pair of each batch always shown the same way round"


def test_no_pair_is_asked_twice_and_none_is_twins(reference):
    db, run, _ = reference
    pairs = [tuple(sorted((c.segment_1, c.segment_2))) for c in tail(db, run.id)]
    assert len(set(pairs)) == len(pairs)
    digests = [s.digest for s in load_segments(db, recent_segment_ids(db, run.id, 10_000)).values()]
    assert len(set(digests)) == len(digests)


def test_segments_come_from_all_environments_and_all_rollouts(reference):
    db, run, _ = reference
    segments = load_segments(db, recent_segment_ids(db, run.id, 10_000)).values()
    assert Counter(s.source for s in segments) == {"initial": 12, "policy": 60}
    by_env = Counter(s.env_index for s in segments)
    assert min(by_env[0], by_env[1]) > 0.05 * len(segments)
    assert {s.env_steps for s in segments} == {128, 256, 384, 512, 640, 768}


def optimiser_steps(db, run, checkpoint):
    tensors = tensors_from_bytes(load_checkpoint(db, run.id, checkpoint.id)[1])
    return {float(t) for name, t in tensors.items() if name.startswith("optimizer.") and name.endswith(".step")}


@pytest.mark.parametrize("n_calls", [150, 300])
def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path, n_calls):
    """Not to the bit: the environments begin new episodes, and the random numbers a stream of their own."""
    db, run = make(tmp_path, settings())
    asked = []

    def stop():
        asked.append(1)
        return len(asked) > n_calls

    assert not run_lockstep(db, run, stop)
    assert read_status(db, "run").state == "stopped"
    before, stored = facts(db, run), list_checkpoints(db, run.id)
    stopped_at = stored[-1].env_steps
    assert 128 < stopped_at < 768
    assert read_status(db, "run").env_steps == stopped_at
    db.close()
    db = Database.open(f"sqlite:///{tmp_path}/run.db")  # nothing but the URL and the name
    run = get_run(db, "run")
    assert run_lockstep(db, run)
    after = facts(db, run)
    for what in ("comparisons", "rewards", "metrics"):
        assert after[what][: len(before[what])] == before[what], "what was there stays, the new comes behind it"
    for id_, segment in before["segments"].items():
        assert after["segments"].get(id_, segment) == segment
    assert read_status(db, "run").state == "done"
    assert 768 <= read_status(db, "run").env_steps < 768 + 128
    assert n_counted(db, run.id) == 24
    assert Counter(s[-1] for s in after["segments"].values())["initial"] == 12, "the untrained policy acts once"
    checkpoints = list_checkpoints(db, run.id)
    n_updates = [c.meta["n_updates"] for c in checkpoints]
    assert n_updates == sorted(n_updates)
    assert n_updates[-1] == 2 * ((stopped_at - 128) // 128 + -(-(768 - stopped_at) // 128)), "2 epochs a rollout"
    moments = [max(optimiser_steps(db, run, c), default=0.0) for c in checkpoints]
    assert moments == sorted(moments)
    assert moments[-1] == 2 * n_updates[-1], "2 minibatches an epoch: Adam's count never began anew"
    loaded = [tensors_from_bytes(load_checkpoint(db, run.id, c.id)[1]) for c in checkpoints]
    counted = [float(tensors["normaliser.obs.count"]) for tensors in loaded]
    assert counted == sorted(counted)
    assert counted[-1] >= 768
    steps = [m.env_steps for m in read_metrics(db, run.id)]
    assert steps == sorted(steps)
    versions = reward_versions(db, run.id)
    assert [v.version for v in versions] == list(range(1, len(versions) + 1))
    fitted = int(tensors_from_bytes(load_reward(db, run.id)[1])["fitter.n_steps"][0])
    assert fitted == 20 + 5 * (len(versions) - 1), "the fit goes on too"
    assert [v.last_seq for v in versions] == sorted(v.last_seq for v in versions)
    db.close()


def test_a_run_that_is_stopped_at_once_can_be_started(tmp_path):
    db, run = make(tmp_path, settings(policy__steps=256))
    assert not run_lockstep(db, run, lambda: True)
    assert list_checkpoints(db, run.id) == []
    assert run_lockstep(db, run)
    assert n_counted(db, run.id) == 24
    db.close()


class Killed(BaseException):
    """What no code expects."""


@pytest.mark.parametrize("where", ["prefrl.oracle.role.answer", "prefrl.reward_model.role.publish"])
def test_a_run_that_dies_in_the_middle_loses_no_comparison(tmp_path, monkeypatch, where):
    db, run = make(tmp_path, settings(policy__steps=512, policy__checkpoint_every=1))
    module, _, name = where.rpartition(".")
    original, n = getattr(importlib.import_module(module), name), []

    def die(*args, **kwargs):
        n.append(1)
        if len(n) == 3:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(where, die)
    with pytest.raises(Killed):
        run_lockstep(db, run)
    assert read_status(db, "run").state == "failed"
    before = [c.uuid for c in tail(db, run.id)]
    assert before
    monkeypatch.undo()
    assert run_lockstep(db, run)
    rows = tail(db, run.id)
    assert [c.uuid for c in rows][: len(before)] == before
    assert [c.seq for c in rows] == list(range(1, len(rows) + 1))
    assert n_counted(db, run.id) == 24
    assert counts(db, run.id)["leased"] == 0, "what the dead one held was answered"
    db.close()


def test_a_done_run_can_be_given_more_steps(tmp_path):
    db, run = make(tmp_path, settings(policy__steps=384))
    assert run_lockstep(db, run)
    done = facts(db, run)
    assert run_lockstep(db, run), "again, without more: nothing happens"
    assert facts(db, run)["metrics"] == done["metrics"]
    assert facts(db, run)["policies"] == done["policies"], "the same policy is not stored twice"
    run = extend(db, run, 640, None)
    assert run_lockstep(db, run)
    assert read_status(db, "run").env_steps == 640
    assert n_counted(db, run.id) == 24, "the budget does not grow with the steps"
    with pytest.raises(ConfigError, match="less than"):
        extend(db, run, 100, None)
    db.close()


@pytest.mark.parametrize(("source", "least"), [("learned", 256), ("true", 128)])
def test_a_run_too_short_to_learn_is_refused_and_the_shortest_learns(tmp_path, source, least):
    with pytest.raises(ConfigError, match=rf"policy\.steps is {least - 1}.* at least --steps {least},"):
        prepare(settings(policy__steps=least - 1, reward__source=source))
    db, run = make(tmp_path, settings(policy__steps=least, reward__source=source))
    assert run_lockstep(db, run)
    assert read_status(db, "run").env_steps == least
    assert list_checkpoints(db, run.id)[-1].meta["n_updates"] == 2, "2 epochs"
    db.close()


def test_the_true_reward_needs_no_comparisons(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a run on the true reward has no reward model and no oracle")

    monkeypatch.setattr("prefrl.reward_model.role.RewardRole.__init__", refuse)
    monkeypatch.setattr("prefrl.oracle.role.OracleRole.__init__", refuse)
    monkeypatch.setattr("builtins.input", refuse)
    db, run = make(tmp_path, settings(reward__source="true", label__oracle="none"))
    check_start("lockstep", from_dict(run.config))
    assert run_lockstep(db, run)
    assert tail(db, run.id) == []
    assert sum(counts(db, run.id).values()) == 0
    assert recent_segment_ids(db, run.id, 10) == []
    assert reward_versions(db, run.id) == []
    names = {m.name for m in read_metrics(db, run.id)}
    assert "true_return" in names
    assert not names & {"learned_return", "reward_version"}
    assert {w.role for w in workers(db, run.id)} == {"rollout"}
    status = read_status(db, "run")
    assert (status.state, status.env_steps, status.budget, status.scheduled) == ("done", 768, 0, 0)
    assert len(evaluate(db, "run", episodes=1).true_returns) == 1
    db.close()


def test_upfront_asks_everything_of_the_untrained_policy(tmp_path):
    db, run = make(tmp_path, settings(label__schedule="upfront"))
    assert run_lockstep(db, run)
    rows = tail(db, run.id)
    assert len(rows) == 24
    assert {c.env_steps for c in rows} == {384}, "24 times 15 steps, in rollouts: half of the run"
    asked = load_segments(db, {i for c in rows for i in (c.segment_1, c.segment_2)}).values()
    assert {s.source for s in asked} == {"initial"}
    assert len(reward_versions(db, run.id)) > 1, "and the ensemble is fitted on all the same"
    db.close()


class LyingOracle(OracleRole):
    """Says the opposite of what it sees wherever the answer is held out."""

    def _answer(self, lease, judged, stats):
        one = super()._answer(lease, judged, stats)
        if tuple(sorted((lease.segment_1, lease.segment_2))) not in held_out_pairs(self.db, self.run.id):
            return one
        other = {Preference.LEFT: Preference.RIGHT, Preference.RIGHT: Preference.LEFT}
        return dataclasses.replace(one, preference=other[one.preference])


@pytest.mark.parametrize("schedule", ["paper", "upfront"])
def test_answers_that_are_held_out_are_of_now_against_untrained_and_change_nothing(tmp_path, monkeypatch, schedule):
    """Negative control: with all of them the other way round, reward and policy are the same to the bit."""
    config, found = settings(label__schedule=schedule, label__held_out_share=0.25), []
    for oracle in (OracleRole, LyingOracle):
        monkeypatch.setattr("prefrl.oracle.role.OracleRole", oracle)
        db, run = make(tmp_path, config, oracle.__name__)
        assert run_lockstep(db, run)
        pairs, rows = held_out_pairs(db, run.id), tail(db, run.id)
        held = [c for c in rows if c.pair in pairs]
        assert (len(rows), len(held)) == (24, 6)
        sources = load_segments(db, {i for c in held for i in c.pair})
        assert {(sources[c.segment_1].source, sources[c.segment_2].source) for c in held} == {("policy", "initial")}
        assert len({c.env_steps for c in held}) > 1, "spread over the run"
        each = [from_metrics(v.metrics) for v in reward_versions(db, run.id)]
        found.append((facts(db, run), each))
        db.close()
    (told, true), (lied, false) = found
    assert sum(e.n for e in true) == 6
    assert [(e.claimed, e.seen) for e in true] == [(e.claimed, e.n - e.seen) for e in false]
    assert told["weights"] == lied["weights"]
    assert told["policies"] == lied["policies"]


def test_a_held_out_answer_is_evidence_once_also_after_a_resume(tmp_path):
    db, run = make(tmp_path, settings(label__held_out_share=0.25))
    assert not run_lockstep(db, run, stop=lambda: len(reward_versions(db, run.id)) == 4)
    before = sum(from_metrics(v.metrics).n for v in reward_versions(db, run.id))
    assert before > 0
    assert run_lockstep(db, run)
    assert before < sum(from_metrics(v.metrics).n for v in reward_versions(db, run.id)) == 6
    db.close()


def test_an_alarm_is_told_once_each_time_it_begins_also_after_a_resume(tmp_path, monkeypatch):
    fine, bad = evidence([0.9] * 30, [1.0] * 30), evidence([0.9] * 30, [0.0] * 30)
    told = iter([fine, bad, bad, fine, bad])
    monkeypatch.setattr("prefrl.reward_model.role.judge_held_out", lambda *_: next(told, fine))
    db, run = make(tmp_path, settings(label__held_out_share=0.25))
    assert not run_lockstep(db, run, stop=lambda: len(reward_versions(db, run.id)) == 4)
    assert len(events_of(db, run, "hacking")) == 1
    assert "may be exploited" in line(read_status(db, "run"), 0.0)
    assert run_lockstep(db, run)
    assert [v.metrics.get("hacking_alarm") for v in reward_versions(db, run.id)] == [None, 0, 1, 1, 0, 1]
    (first, second) = events_of(db, run, "hacking")
    assert "in 0 of the last 30 held-out comparisons" in first
    assert "the reward expected 27" in second
    assert "may be exploited" in line(read_status(db, "run"), 0.0)
    db.close()


def events_of(db, run, kind):
    return [e.message for e in reversed(events(db, run.id)) if e.kind == kind]


def test_an_oracle_that_cannot_compare_some_still_ends(tmp_path):
    db, run = make(tmp_path, settings(label__oracle="skip", label__budget=12, policy__steps=384))
    assert run_lockstep(db, run)
    rows = tail(db, run.id)
    n_skipped = sum(c.preference is Preference.INCOMPARABLE for c in rows)
    assert n_skipped > 0
    assert n_counted(db, run.id) == 12 == len(rows) - n_skipped, "what trains nothing costs nothing"
    counted = np.cumsum([c.mu is not None for c in rows])
    for version in reward_versions(db, run.id):
        assert version.metrics["n_comparisons"] == counted[version.last_seq - 1]
    db.close()


def plug_in(monkeypatch, teacher):
    module = types.ModuleType("plugged_in_oracle")
    module.make = lambda: teacher
    monkeypatch.setitem(sys.modules, "plugged_in_oracle", module)
    return "plugged_in_oracle:make"


def test_an_oracle_that_can_compare_nothing_ends_with_a_reason(tmp_path, monkeypatch):
    name = plug_in(monkeypatch, lambda left, right, stats, rng: Preference.INCOMPARABLE)
    db, run = make(tmp_path, settings(label__oracle=name))
    with pytest.raises(PrefrlError, match=r"all pairs of the 12 newest .* \(0 so far that can be.*label\.oracle"):
        run_lockstep(db, run)
    assert n_counted(db, run.id) == 0
    assert len(tail(db, run.id)) == 12 * 11 / 2, "every pair of the untrained policy's segments was tried once"
    assert read_status(db, "run").state == "failed"
    db.close()


def test_an_oracle_of_ones_own_sees_what_happened_where_there_is_no_true_reward(tmp_path, monkeypatch):
    seen = []

    def higher(left, right, stats, rng):
        seen.append((left, right))
        return Preference.LEFT if left.obs[:, 0].mean() > right.obs[:, 0].mean() else Preference.RIGHT

    db, run = make(
        tmp_path,
        settings(env={"id": "backflip-hopper", "segment_steps": 10}, label__oracle=plug_in(monkeypatch, higher)),
    )
    seen.clear()  # it was tried out
    assert run_lockstep(db, run)
    assert all(one.rewards.tolist() == [0.0] * 10 and one.act.shape == (10, 3) for pair in seen for one in pair)
    rows = tail(db, run.id)
    segments = load_segments(db, [i for row in rows for i in (row.segment_1, row.segment_2)])
    for row in rows:
        first, second = (segments[i].obs[:, 0].mean() for i in (row.segment_1, row.segment_2))
        assert row.mu == float(first > second), "it was asked about the clips of this very pair, side by side"
    db.close()


def coy(ensemble, obs, act, candidates, n):
    """A selector that chooses nothing, but for those who try it out."""
    return candidates[: n * (len(candidates) == 50)]


@pytest.mark.parametrize("max_lag", [0, 1])
def test_a_selector_that_chooses_nothing_is_told_and_ends_a_run_that_waits_for_it(tmp_path, monkeypatch, max_lag):
    monkeypatch.setitem(sys.modules, "plugged_in_selector", module := types.ModuleType("plugged_in_selector"))
    module.coy = coy
    db, run = make(
        tmp_path, settings(query__selector="plugged_in_selector:coy", label__max_lag=max_lag, policy__steps=512)
    )
    if max_lag:
        with pytest.raises(ConfigError, match=r"query\.selector 'plugged_in_selector:coy' chooses none.*\(6 so far"):
            run_lockstep(db, run)
    else:
        assert run_lockstep(db, run)
    assert read_status(db, "run").state == ("failed" if max_lag else "done")
    assert n_counted(db, run.id) == 6, "those that are drawn before there is an ensemble to choose by"
    (told,) = events(db, run.id)
    assert told.message.endswith("chooses none of the candidate pairs; nothing is asked until it does")
    db.close()


def test_the_budget_is_never_exceeded(tmp_path, monkeypatch):
    """Looked at after each answer, with an oracle that answers in every way there is."""
    kinds = [Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE]
    name = plug_in(monkeypatch, lambda left, right, stats, rng: kinds[rng.integers(4)])
    db, run = make(tmp_path, settings(label__oracle=name, label__budget=9, policy__steps=512))
    config, seen = from_dict(run.config), []

    def watched(db_, answers):
        rows = queue.answer(db_, answers)
        steps = max(w.env_steps for w in workers(db, run.id))
        seen.append((n_counted(db, run.id), n_scheduled(config.label, steps - 128, 512 - 128)))
        return rows

    monkeypatch.setattr("prefrl.oracle.role.answer", watched)
    assert run_lockstep(db, run)
    assert all(n <= scheduled <= 9 for n, scheduled in seen)
    assert n_counted(db, run.id) == 9
    assert {c.preference for c in tail(db, run.id)} == set(kinds)
    db.close()


def test_the_last_answers_are_fitted_although_the_oracle_is_dead(tmp_path):
    """It leaves an open query; while it lives the reward role waits for its answer."""
    db, run = make(tmp_path, settings())
    assert run_lockstep(db, run)
    before = len(reward_versions(db, run.id))
    one, two, three = recent_segment_ids(db, run.id, 3)
    queue.propose(db, run.id, [(one, two), (one, three)], env_steps=768)
    (lease,) = queue.lease(db, run.id, "oracle")
    queue.answer(db, [Answer(lease.query_id, lease.token, Preference.LEFT, "oracle", lease.token)])
    oracle = claim(db, run.id, "oracle")
    role = RewardRole(db, run)
    assert not role.step()
    release(db, oracle)
    assert role.step()
    newest = reward_versions(db, run.id)[-1]
    assert (newest.version, newest.last_seq) == (before + 1, 25)
    db.close()


def test_a_pause_for_slow_answers_ends_when_they_come(tmp_path):
    db, run = make(tmp_path, settings(label__max_lag=1, policy__sync_every=384))
    assert run_lockstep(db, run)
    assert n_counted(db, run.id) == 24
    asked_at = {c.env_steps for c in tail(db, run.id)}
    assert asked_at - {128, 512, 768}, "between two exchanges the run paused until it was no longer behind"
    db.close()


class SlowReward(Lockstep):
    """The other roles come to work only while the rollout waits for them."""

    def exchange(self):
        pass


@pytest.mark.parametrize(("max_age", "oldest"), [(0, 128), (256, 256), (768, 512)])
def test_the_policy_waits_for_a_reward_that_is_too_old(tmp_path, monkeypatch, max_age, oldest):
    """Rollouts of 128 steps, the first of the untrained policy: the last starts at 640, 512 after the first version."""
    monkeypatch.setattr("prefrl.run.lockstep.Lockstep", SlowReward)
    db, run = make(tmp_path, settings(reward__max_age=max_age))
    assert run_lockstep(db, run)
    fitted_at = {v.version: v.env_steps for v in reward_versions(db, run.id)}
    used = {m.env_steps - 128: m.value for m in read_metrics(db, run.id) if m.name == "reward_version" and m.value}
    assert max(used) == 640
    assert max(start - fitted_at[version] for start, version in used.items()) == oldest
    db.close()


def test_people_cannot_be_waited_for(tmp_path):
    config, _ = prepare(settings(label__oracle="none"))
    with pytest.raises(ConfigError, match=r"lockstep .* cannot wait for people"):
        check_start("lockstep", config)
    check_start("async", config)


def test_a_reward_that_is_not_finite_fails_the_run_and_keeps_the_policy(tmp_path, monkeypatch):
    db, run = make(tmp_path, settings(policy__checkpoint_every=1))
    n = []

    def spoiled(ensemble):
        def reward(obs, act):
            n.append(1)
            return ensemble.reward(obs, act) if len(n) < 100 else np.full(len(obs), np.nan, np.float32)

        return reward

    monkeypatch.setattr("prefrl.reward_model.published.stepwise", spoiled)
    with pytest.raises(RewardError, match=r"version 2 .* nan in environment 0"):
        run_lockstep(db, run)
    assert read_status(db, "run").state == "failed"
    newest, payload = load_checkpoint(db, run.id)
    assert newest.env_steps == 256
    assert all(torch.isfinite(t).all() for t in tensors_from_bytes(payload).values())
    monkeypatch.undo()
    assert run_lockstep(db, run), "and with the fault mended it goes on"
    db.close()


class Short(gym.Env):
    """Ends after ``length`` steps."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, length=5):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return obs, float(obs[0]), self.t >= self.length, False, {}


@pytest.fixture
def short():
    gym.register("Short-v0", Short, max_episode_steps=50)
    yield "Short-v0"
    del gym.registry["Short-v0"]


def test_episodes_that_end_early_are_refused_by_name(short):
    with pytest.raises(EnvError, match=r"Short-v0: .* step 5 of 50.*leaks the answer"):
        prepare(settings(env__id=short))


@pytest.mark.parametrize("ends", ["reset", "allow"])
def test_episodes_too_short_for_a_segment_end_the_run_with_a_reason(short, tmp_path, ends):
    db, run = make(tmp_path, settings(env__id=short, env__ends=ends))
    assert run.config["env"]["segment_steps"] == 25
    with pytest.raises(EnvError, match=r"Short-v0: .* no segments of 25 steps \(\d+ of its episodes are shorter"):
        run_lockstep(db, run)
    assert recent_segment_ids(db, run.id, 10) == []
    db.close()


def test_too_few_steps_for_two_segments_end_the_run_with_a_reason(tmp_path):
    """128 steps in 8 environments are 16 for each, in which a segment of 15 fits, but of 17 does not."""
    eight = {"policy__n_envs": 8, "policy__n_steps": 16}
    db, run = make(tmp_path, settings(env__segment_steps=17, **eight))
    with pytest.raises(EnvError, match=r"no segments of 17 steps \(it makes 16 steps in each of 8 env.*n_envs"):
        run_lockstep(db, run)
    db.close()


def test_hidden_resets_are_not_crossed_in_a_run(short, tmp_path):
    db, run = make(tmp_path, settings(policy__steps=384, env__id=short, env__ends="reset", env__segment_steps=5))
    assert run_lockstep(db, run)
    segments = load_segments(db, recent_segment_ids(db, run.id, 1000)).values()
    assert len(segments) > 20
    assert {s.start % 5 for s in segments} == {0}, "a segment of 5 steps fits a life of 5 in one way only"
    db.close()


def test_the_settings_of_the_environment_are_part_of_what_is_stored(short):
    _, versions = prepare(settings(env__id=short, env__kwargs={"length": 60}))
    assert versions["env_id"] == "Short-v0"
    gym.register("Wide-v0", lambda width: gym.wrappers.FlattenObservation(Short(60)), max_episode_steps=50)
    try:
        _, versions = prepare(settings(env__id="Wide-v0", env__kwargs={"width": 2}))  # not made without it
        assert versions["env_id"] == "Wide-v0"
    finally:
        del gym.registry["Wide-v0"]


def trace(db, run):
    """What must not change unnoticed: who was compared with whom, what was said, when, under which reward."""
    exact = {
        "comparisons": [
            [c.seq, c.segment_1, c.segment_2, c.preference.value, c.shown_left, c.env_steps] for c in tail(db, run.id)
        ],
        "reward_versions": [[v.version, v.last_seq, v.env_steps] for v in reward_versions(db, run.id)],
        "checkpoints": [[c.env_steps, c.meta["n_updates"]] for c in list_checkpoints(db, run.id)],
        "segments": [
            [id_, s.env_index, s.episode, s.start, s.env_steps, s.source]
            for id_, s in sorted(load_segments(db, recent_segment_ids(db, run.id, 10_000)).items())
        ],
    }
    first = reward_versions(db, run.id)[0].metrics
    obs = load_segments(db, [1])[1].obs
    near = {"train_loss": first["train_loss"], "l2": first["l2"], "first_obs": [float(x) for x in obs[0]]}
    return {"exact": exact, "near": near}


def test_golden_trace(tmp_path):
    db, run = make(tmp_path, settings(policy__steps=384, query__selector="random"))
    assert run_lockstep(db, run)
    found = trace(db, run)
    db.close()
    if os.environ.get("PREFRL_GOLDEN") == "write":
        rows = json.dumps(found).replace("], [", "],\n[").replace('"near"', '\n"near"')
        GOLDEN.write_text(rows + "\n")
    expected = json.loads(GOLDEN.read_text())
    assert found["exact"] == expected["exact"]
    for name, value in expected["near"].items():
        assert found["near"][name] == pytest.approx(value, abs=1e-4), name
