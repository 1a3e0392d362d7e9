"""A reward fitted afresh to all comparisons of a run, without simulator or policy: comparisons transfer."""

from __future__ import annotations

from collections.abc import Callable

from prefrl.config import RunConfig
from prefrl.errors import ConfigError
from prefrl.reward_model.dataset import PreferenceDataset, stack_steps
from prefrl.reward_model.ensemble import RewardEnsemble, tensors_to_bytes
from prefrl.reward_model.fitting import Fitter
from prefrl.reward_model.spaces import Spaces
from prefrl.settings import from_dict
from prefrl.store.comparisons import tail
from prefrl.store.engine import Database
from prefrl.store.held_out import held_out_pairs
from prefrl.store.rewards import NewReward
from prefrl.store.runs import Run
from prefrl.store.segments import load_segments, recent_segment_ids


def fit_afresh(db: Database, run: Run, config: RunConfig, tell: Callable[[str], None] = lambda line: None) -> NewReward:
    """Fit a new ensemble to the comparisons of a run that stand and are not held out, as its reward role would have.

    Args:
        db: The run's database; only read.
        run: The run.
        config: Of the fit: ``reward``, whose ``pretrain_steps`` minibatches are taken, and ``seed``.
        tell: Is given a line before the fit, which may take a while.

    Returns:
        The ensemble, with what the fit reports and how many comparisons there were (``n_comparisons``) and were
        left out as held out (``n_held_out``).

    Raises:
        ConfigError: Nothing can be learned from the comparisons.
        RewardError: A comparison does not fit the settings, or the weights are no longer finite.
    """
    spaces = Spaces.from_dict(run.versions["spaces"])
    assert config.env.segment_steps is not None, "the configuration of a run is resolved"
    data = PreferenceDataset(spaces, config.env.segment_steps, config.reward.window)
    data.held_out = held_out_pairs(db, run.id)
    rows = tail(db, run.id)
    compared = load_segments(db, data.missing(rows))
    data.extend(rows, compared)
    _check(data, run, config)
    ensemble = RewardEnsemble(spaces, config.reward, config.seed)
    if not spaces.n_stacked:
        first = load_segments(db, recent_segment_ids(db, run.id, 10_000, source="initial"))
        ensemble.set_input_statistics(*stack_steps((first or compared).values()))  # imports have no random policy
    fitter = Fitter(ensemble, config.reward, config.seed)
    n_steps, n_members = config.reward.pretrain_steps, config.reward.n_members
    networks = "1 network" if n_members == 1 else f"{n_members} networks"
    tell(f"fitting {networks} to {len(data)} comparisons of run {run.name}, {n_steps:,} minibatches")
    report = fitter.fit(data, n_steps)
    tensors = ensemble.to_tensors() | fitter.to_tensors()
    counted = {"n_comparisons": len(data), "n_held_out": data.n_held_out}
    return NewReward(tensors_to_bytes(tensors), data.last_seq, {**report.metrics(), **counted})


def _check(data: PreferenceDataset, run: Run, config: RunConfig) -> None:
    if not len(data):
        origin = from_dict(run.config).reward.origin.partition("@")[0]
        mend = f"those of its reward are in run {origin!r}" if origin else f"`prefrl import {run.name} FILE` adds some"
        raise ConfigError(f"run {run.name!r} has no comparisons that train, so there is nothing to fit: {mend}")
    if config.reward.objective == "preference" and (data.mu == 0.5).all():
        raise ConfigError(
            f"all {len(data)} comparisons of run {run.name!r} that train are ties, which tell no reward from another: "
            "decide some, or edit them on the Comparisons page"
        )
