"""The calibration that the reward role publishes is the one that the report computes from the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefrl.report.facts import read_facts
from prefrl.report.numbers import calibrate
from prefrl.reward_model.calibration import agreed_from_metrics, from_metrics
from prefrl.run.create import new_run, prepare
from prefrl.run.lockstep import run_lockstep
from prefrl.settings import from_dict
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.rewards import reward_versions

SETTINGS = {
    "env": {"id": "pendulum"},
    "policy": {
        "learner": "ppo",
        "steps": 512,
        "n_envs": 2,
        "n_steps": 64,
        "sync_every": 128,
        "kwargs": {"batch_size": 64, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}},
    },
    "reward": {"pretrain_steps": 20, "fit_steps": 5, "batch_size": 16},
    "query": {"segments_per_rollout": 12, "pool": 24},
    "label": {"budget": 24},
    "seed": 0,
}


def test_published_and_recomputed_calibration_agree(tmp_path: Path) -> None:
    with Database.create(f"sqlite:///{tmp_path}/run.db") as db:
        run = new_run(db, "run", *prepare(from_dict(SETTINGS)))
        assert run_lockstep(db, run)
        newest = reward_versions(db, run.id)[-1].metrics
        quality = read_facts(db, "run").quality
        assert quality is not None
        recomputed = calibrate(quality.held_out.predicted, quality.held_out.first)
        published = from_metrics(newest)
        assert published.n > 5
        assert [(b.place, b.n, b.n_first) for b in published.bins] == [
            (b.place, b.n, b.n_first) for b in recomputed.bins
        ]
        assert published.error == pytest.approx(recomputed.error, abs=1e-5)
        right = int(((quality.held_out.predicted > 0.5) == quality.held_out.first).sum())
        assert list(agreed_from_metrics(newest).values()) == [(right, published.n)]
        names = {m.name for m in read_metrics(db, run.id)}
        assert "oob_ece" in names
        assert not any(name.startswith(("oob_bin_", "oob_agreed_")) for name in names)
