"""The settings of a run: frozen dataclasses, one level of nesting, checked when made.

The docstring under each field is its help on the command line (``prefrl run --help``).
Precedence: defaults < TOML file < flags. The resolved configuration is stored with the run, and all processes read it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from prefrl.errors import ConfigError, nearest

LEARNERS = ("trpo", "a2c", "ppo")  # names of what ships with prefrl, for those who should not import torch
NETS = ("mlp", "cnn", "cnn-small")
SELECTORS = ("disagreement", "information", "random")
SCHEDULES = ("paper", "staircase", "constant", "upfront")
PRESETS = ("laptop",)
BUDGET = 700  # the paper's
LEAST_LAG, AHEAD, HELD_OUT = 8, 8, 0.05  # with people as annotators
FEWEST_HELD_OUT = 15  # comparisons: with fewer nothing is said about hacking


@dataclass(frozen=True)
class EnvConfig:
    """The environment and how segments are cut from it."""

    id: str = "pendulum"
    """Task (cheetah, hopper, walker, ant, swimmer, reacher, pendulum, double-pendulum; games: beam-rider, breakout,
    enduro, pong, qbert, seaquest, space-invaders; for people to teach: backflip-hopper, one-leg-cheetah,
    enduro-alongside) or any Gymnasium id."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments for gymnasium.make."""
    horizon: int | None = None
    """Time steps of an episode; by default the task's own."""
    segment_steps: int | None = None
    """Time steps of a segment; by default the task's own (25 for other environments)."""
    ends: str = "refuse"
    """What to do when an episode ends early, which would leak the task: refuse, reset (hidden), allow."""


@dataclass(frozen=True)
class PolicyConfig:
    """The policy's learner (paper section 2.2.1)."""

    learner: str = "trpo"
    """trpo, a2c, ppo, or module:Class of any stable-baselines3 on-policy algorithm."""
    steps: int = 300_000
    """Agent steps of the whole run, the untrained policy's first ones included."""
    n_envs: int = 2
    """Environments stepped side by side."""
    n_steps: int | None = None
    """Time steps of each environment between two updates; by default 512 for trpo, 5 for a2c, else 1024."""
    sync_every: int = 1024
    """Agent steps between two exchanges (segments out, newest reward in), rounded up to a rollout."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the learner, over the defaults of prefrl.rollout.learners."""
    normalize_obs: bool = True
    """Standardise the policy's observations by running statistics (never the reward model's)."""
    normalize_reward: bool = True
    """Divide rewards by the running spread of their discounted sum, so that the critic's targets are of order 1."""
    decay_steps: int = 0
    """Agent steps after which the learning rate would have fallen to 0, linearly; 0 means that it stays."""
    checkpoint_every: int = 10_000
    """Agent steps between checkpoints: what a crash may lose at most, rounded up to a rollout."""
    device: str = "cpu"
    """auto, cpu or cuda."""
    threads: int = 1
    """Torch threads of each process."""


@dataclass(frozen=True)
class RewardConfig:
    """The reward model (paper section 2.2.3)."""

    source: str = "learned"
    """learned: from comparisons. true: the environment's own, the paper's reference. frozen: see reward.origin."""
    origin: str = ""
    """RUN or RUN@VERSION of this database: its learned reward is taken as it is (--reward makes the source frozen)."""
    objective: str = "preference"
    """preference: cross-entropy of the answers (equation 1). target: squared error to the segments' true returns, which
    the oracle true-return then tells (the paper's ablation)."""
    net: str = "mlp"
    """mlp; for images cnn (paper) or cnn-small; or module:function making a net (see prefrl.reward_model.nets)."""
    n_members: int = 3
    """Networks in the ensemble."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 64
    """Comparisons of a minibatch, for each member its own."""
    pretrain_steps: int = 1500
    """Minibatches for each member on the initial comparisons, before the policy learns."""
    fit_steps: int = 0
    """Minibatches for each member and exchange (policy.sync_every); 0 means about 60,000 in the whole run, 20 to 200
    each time."""
    noise: float = 0.1
    """Assumed chance that an annotator answers uniformly at random (paper: 0.1)."""
    l2_initial: float = 1e-2
    """First coefficient of the L2 penalty; 0 turns L2 off."""
    l2_low: float = 1.1
    """Below this ratio of validation to training loss the L2 coefficient shrinks."""
    l2_high: float = 1.5
    """Above this ratio it grows."""
    dropout: float = 0.0
    """Dropout after each hidden layer while fitting."""
    output_std: float = 1.0
    """Standard deviation of the learned reward (paper: 1 on MuJoCo, 0.05 on Atari); what the learner sees is scaled
    once more where policy.normalize_reward is on."""
    window: int = 0
    """Newest comparisons that are fitted to (paper: 3,000 on Atari); 0 means all."""
    max_age: int = 0
    """Pause rollouts while the newest version is older than this many agent steps; 0 means a thirtieth of the run.
    Never less than policy.sync_every."""
    device: str = "cpu"
    """auto, cpu or cuda."""


@dataclass(frozen=True)
class QueryConfig:
    """Which pairs are asked (paper section 2.2.4)."""

    selector: str = "disagreement"
    """disagreement (paper), information (what the answer is expected to tell about the members, noise included),
    random, or module:function."""
    variance_of: str = "probability"
    """Disagreement is the variance over members of: probability, logit."""
    batch: str = "top"
    """Of the best candidates ask: top (paper), or diverse: of twice as many, without those that are most alike."""
    candidate_factor: int = 10
    """Candidate pairs for each query asked."""
    pool: int = 256
    """Newest segments from which pairs are drawn."""
    segments_per_rollout: int = 64
    """Segments recorded between two exchanges (policy.sync_every), uniformly over time steps."""
    max_age: int = 0
    """Agent steps after which a query that nobody took expires; 0 means a tenth of the run."""


@dataclass(frozen=True)
class LabelConfig:
    """How many comparisons, when, and who gives them."""

    budget: int | None = None
    """Comparisons of the whole run; by default as many as the paper gave the task, which is 700 for most."""
    initial_fraction: float = 0.25
    """Share of the budget asked about the untrained policy (paper: 0.25)."""
    schedule: str = "paper"
    """paper: rate tau/(T+tau); staircase: the same, lowered every tau steps (paper, Atari); constant; upfront: all
    at the start (the ablation without online queries)."""
    tau: int = 0
    """Agent steps after which the paper's rate has halved; 0 means a tenth of the run, as in the paper."""
    oracle: str = "true-return"
    """none (people), true-return, stochastic, mistake, skip, equal, myopic, or module:function."""
    oracle_kwargs: dict[str, Any] = field(default_factory=dict)
    """Parameters of the oracle, such as beta, epsilon, threshold, gamma."""
    max_lag: int | None = None
    """Pause rollouts while the answers are more than this many behind the schedule; 0 never pauses. By default 0 with
    an oracle, and with people a fiftieth of the budget, at least 8."""
    ahead: int | None = None
    """Queries kept open ahead of the schedule, so that nobody waits for the next exchange; by default 0 with an oracle,
    8 with people."""
    instructions: str = ""
    """What people are asked to look for, one or two sentences of Markdown; by default the task's own."""
    overlap: int = 1
    """People who are to answer each pair; with 2 or more, how far they agree is known. Every answer counts."""
    repeat_share: float = 0.0
    """Share of the questions that somebody has answered before, asked of him again: how far he agrees with himself."""
    gold_share: float = 0.0
    """Share of the questions whose right answer is known, as marked on the Comparisons page."""
    held_out_share: float | None = None
    """Share of the comparisons that are never trained on, spread evenly over the run: what the policy does now against
    what it did untrained, to tell whether it exploits the reward. By default 0.05 with people, if 15 or more."""
    prefetch: int = 3
    """Pairs that the page of one annotator holds ready, the one on the screen included."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run; stored in the database with it."""

    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    query: QueryConfig = field(default_factory=QueryConfig)
    label: LabelConfig = field(default_factory=LabelConfig)
    seed: int = 0
    """Seed of every random number of the run."""
    preset: str = ""
    """laptop: Atari in small frames with small networks, for a run of hours; by default the paper's sizes."""

    def __post_init__(self) -> None:
        check(self)


_TINY, _INF = 1e-12, math.inf
_MOST = 10**15  # of any whole number: more steps than anybody makes, and databases and floats still hold it exactly
_BOUNDS: dict[str, tuple[float, float]] = {  # inclusive
    "env.horizon": (1, _INF),
    "env.segment_steps": (1, _INF),
    "policy.steps": (1, _INF),
    "policy.n_envs": (1, _INF),
    "policy.n_steps": (1, _INF),
    "policy.sync_every": (1, _INF),
    "policy.checkpoint_every": (1, _INF),
    "policy.decay_steps": (0, _INF),
    "policy.threads": (1, _INF),
    "reward.n_members": (1, _INF),
    "reward.learning_rate": (_TINY, _INF),
    "reward.batch_size": (1, _INF),
    "reward.pretrain_steps": (1, _INF),
    "reward.fit_steps": (0, _INF),
    "reward.noise": (0, 0.99),
    "reward.l2_initial": (0, _INF),
    "reward.l2_low": (_TINY, _INF),
    "reward.l2_high": (_TINY, _INF),
    "reward.dropout": (0, 0.99),
    "reward.output_std": (_TINY, _INF),
    "reward.window": (0, _INF),
    "reward.max_age": (0, _INF),
    "query.candidate_factor": (1, _INF),
    "query.pool": (2, _INF),
    "query.segments_per_rollout": (1, _INF),
    "query.max_age": (0, _INF),
    "label.budget": (1, _INF),
    "label.initial_fraction": (0, 1),
    "label.tau": (0, _INF),
    "label.max_lag": (0, _INF),
    "label.ahead": (0, _INF),
    "label.overlap": (1, 20),
    "label.repeat_share": (0, 0.5),
    "label.gold_share": (0, 0.5),
    "label.held_out_share": (0, 0.5),
    "label.prefetch": (1, 10),
    "seed": (0, 2**32 - 1),
}


def check(config: RunConfig) -> None:
    """Raise ConfigError, naming the setting, if a value cannot work."""
    for name, (low, high) in _BOUNDS.items():
        section, _, key = name.rpartition(".")
        value = getattr(getattr(config, section) if section else config, key)
        if isinstance(value, int) and value > _MOST:
            raise ConfigError(f"{name} must be at most {_MOST:,}, not {value}")
        if value is not None and not (low <= value <= high and value < _INF):
            above = "above 0" if low == _TINY else f"at least {low:g}"
            raise ConfigError(f"{name} must be {above}{'' if high == _INF else f' and at most {high}'}, not {value}")
    reward = config.reward
    if reward.l2_low > reward.l2_high:
        raise ConfigError(f"reward.l2_low ({reward.l2_low}) must be at most reward.l2_high ({reward.l2_high})")
    _check_choices(config)
    if (reward.source == "frozen") != bool(reward.origin):
        raise ConfigError("reward.source frozen and reward.origin RUN need each other: --reward RUN sets both")
    horizon, k = config.env.horizon, config.env.segment_steps
    if horizon is not None and k is not None and k > horizon:
        raise ConfigError(f"env.segment_steps is {k}, longer than an episode (env.horizon {horizon}); make it shorter")


def _check_choices(config: RunConfig) -> None:
    choices: dict[str, tuple[str, tuple[str, ...], bool]] = {
        "env.ends": (config.env.ends, ("refuse", "reset", "allow"), False),
        "policy.learner": (config.policy.learner, LEARNERS, True),
        "policy.device": (config.policy.device, ("auto", "cpu", "cuda"), False),
        "reward.source": (config.reward.source, ("learned", "true", "frozen"), False),
        "reward.objective": (config.reward.objective, ("preference", "target"), False),
        "reward.device": (config.reward.device, ("auto", "cpu", "cuda"), False),
        "query.variance_of": (config.query.variance_of, ("probability", "logit"), False),
        "query.batch": (config.query.batch, ("top", "diverse"), False),
        "label.schedule": (config.label.schedule, SCHEDULES, False),
        "preset": (config.preset, ("", *PRESETS), False),
    }
    for name, (value, allowed, plugin) in choices.items():
        if value not in allowed and not (plugin and ":" in value):
            more = ", or module:Class" if plugin else ""
            known = ", ".join(one for one in allowed if one)
            raise ConfigError(f"{name} is {value!r}; it must be one of {known}{more}{nearest(value, allowed)}")
