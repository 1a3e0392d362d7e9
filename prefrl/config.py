"""The settings of a run: frozen dataclasses, one level of nesting, checked when made.

The docstring under each field is its help on the command line (``prefrl run --help``).
Precedence: defaults < TOML file < flags. The resolved configuration is stored with the run, and all processes read it.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefrl.errors import ConfigError, nearest

LEARNERS = ("trpo", "a2c", "ppo")  # names of what ships with prefrl, for those who should not import torch
NETS = ("mlp",)
SELECTORS = ("disagreement", "information", "random")
SCHEDULES = ("paper", "constant", "upfront")
BUDGET = 700  # the paper's
LEAST_LAG, AHEAD, HELD_OUT = 8, 8, 0.05  # with people as annotators
FEWEST_HELD_OUT = 15  # comparisons: with fewer nothing is said about hacking


@dataclass(frozen=True)
class EnvConfig:
    """The environment and how segments are cut from it."""

    id: str = "pendulum"
    """Task (cheetah, hopper, walker, ant, swimmer, reacher, pendulum, double-pendulum; for people to teach:
    backflip-hopper, one-leg-cheetah) or any Gymnasium id."""
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
    """mlp, or module:function making a net for (n_members, obs_dim, act_dim, seed)."""
    n_members: int = 3
    """Networks in the ensemble."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    batch_size: int = 64
    """Comparisons of a minibatch, for each member its own."""
    pretrain_steps: int = 1500
    """Minibatches for each member on the initial comparisons, before the policy learns."""
    fit_steps: int = 200
    """Minibatches for each member and exchange (policy.sync_every)."""
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
    """paper: rate tau/(T+tau); constant; upfront: all at the start (the ablation without online queries)."""
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
    "policy.threads": (1, _INF),
    "reward.n_members": (1, _INF),
    "reward.learning_rate": (_TINY, _INF),
    "reward.batch_size": (1, _INF),
    "reward.pretrain_steps": (1, _INF),
    "reward.fit_steps": (1, _INF),
    "reward.noise": (0, 0.99),
    "reward.l2_initial": (0, _INF),
    "reward.l2_low": (_TINY, _INF),
    "reward.l2_high": (_TINY, _INF),
    "reward.dropout": (0, 0.99),
    "reward.output_std": (_TINY, _INF),
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
    }
    for name, (value, allowed, plugin) in choices.items():
        if value not in allowed and not (plugin and ":" in value):
            more = ", or module:Class" if plugin else ""
            known = ", ".join(allowed)
            raise ConfigError(f"{name} is {value!r}; it must be one of {known}{more}{nearest(value, allowed)}")


@dataclass(frozen=True)
class Setting:
    """One leaf of RunConfig as the command line sees it."""

    name: str
    type: Any
    default: Any
    help: str


def settings() -> list[Setting]:
    """Every leaf of RunConfig, with its help text read from the docstring under the field."""
    leaves = []
    for name, kind in typing.get_type_hints(RunConfig).items():
        if dataclasses.is_dataclass(kind):
            hints, helps = typing.get_type_hints(kind), _field_docs(typing.cast(type, kind))
            for f in dataclasses.fields(kind):
                default = f.default_factory() if callable(f.default_factory) else f.default
                leaves.append(Setting(f"{name}.{f.name}", hints[f.name], default, helps[f.name]))
        else:
            leaves.append(Setting(name, kind, getattr(RunConfig, name), _field_docs(RunConfig)[name]))
    return leaves


@functools.cache  # parsing the source takes milliseconds
def _field_docs(cls: type) -> dict[str, str]:
    body = typing.cast(ast.ClassDef, ast.parse(inspect.getsource(cls)).body[0]).body
    docs: dict[str, str] = {}
    for target, text in itertools.pairwise(body):
        if isinstance(target, ast.AnnAssign) and isinstance(target.target, ast.Name) and isinstance(text, ast.Expr):
            docs[target.target.id] = ast.literal_eval(text.value)
    return docs


def from_dict(values: Mapping[str, Any]) -> RunConfig:
    """Build a RunConfig from nested mappings, refusing unknown names and wrong types.

    Raises:
        ConfigError: Names the setting, what was found and the nearest valid name.
    """
    known = {s.name: s for s in settings()}
    sections: dict[str, dict[str, Any]] = {}
    top: dict[str, Any] = {}
    for section, content in values.items():
        flat = {section: content}
        if isinstance(content, Mapping) and section not in known:
            flat = {f"{section}.{key}": value for key, value in content.items()}
        if not flat and not any(name.startswith(f"{section}.") for name in known):
            raise ConfigError(f"unknown section {section!r}{nearest(section, {n.split('.')[0] for n in known})}")
        for name, value in flat.items():
            if name not in known:
                full = next((n for n in known if n.endswith(f".{name}")), name)  # it may lack its section
                raise ConfigError(f"unknown setting {name!r}{nearest(full, known)}")
            value = _typed(known[name], value)
            if "." in name:
                sections.setdefault(name.split(".")[0], {})[name.split(".")[1]] = value
            else:
                top[name] = value
    classes = {n: t for n, t in typing.get_type_hints(RunConfig).items() if dataclasses.is_dataclass(t)}
    return RunConfig(**{n: typing.cast(Any, classes[n])(**v) for n, v in sections.items()}, **top)


def _typed(setting: Setting, value: Any) -> Any:
    kind = setting.type
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for option in options:
        plain = typing.get_origin(option) or option
        if plain is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, plain) and not (plain is int and isinstance(value, bool)):
            return dict(value) if plain is dict else value
    wanted = " or ".join("nothing" if o is types.NoneType else getattr(o, "__name__", str(o)) for o in options)
    form = "; write it as '{key = 1, name = \"text\"}'" if "dict" in wanted else ""
    raise ConfigError(f"{setting.name} must be {wanted}, not {value!r} ({type(value).__name__}){form}")


def to_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as nested plain dictionaries, the inverse of ``from_dict``."""
    return dataclasses.asdict(config)


def resolve_n_steps(policy: PolicyConfig) -> PolicyConfig:
    """Fill in the learner's own number of steps between two updates."""
    return dataclasses.replace(policy, n_steps=policy.n_steps or {"trpo": 512, "a2c": 5}.get(policy.learner, 1024))


def resolve_label(label: LabelConfig, steps: int, comparisons: int | None = None) -> LabelConfig:
    """Fill in the budget and what follows from it and from who answers.

    A person answers a few times a minute and may go away: unless told otherwise the policy then waits, rather than
    learn on without the comparisons that it was meant to have by then.
    """
    people = label.oracle == "none"
    budget = label.budget or comparisons or BUDGET
    max_lag, ahead = (max(LEAST_LAG, budget // 50), AHEAD) if people else (0, 0)
    held_out = HELD_OUT if people and round(HELD_OUT * budget) >= FEWEST_HELD_OUT else 0.0
    return dataclasses.replace(
        label,
        budget=budget,
        tau=label.tau or max(1, steps // 10),
        max_lag=max_lag if label.max_lag is None else label.max_lag,
        ahead=ahead if label.ahead is None else label.ahead,
        held_out_share=held_out if label.held_out_share is None else label.held_out_share,
    )


def resolve(config: RunConfig) -> RunConfig:
    """Fill in what the task and learner decide, so that a run's stored settings are complete."""
    from prefrl.envs.tasks import find_task

    task = find_task(config.env.id)
    env = config.env
    if task is not None:
        env = dataclasses.replace(
            env, horizon=env.horizon or task.horizon, segment_steps=env.segment_steps or task.segment_steps
        )
    policy = resolve_n_steps(config.policy)
    if task is not None and policy.learner == "trpo" and "ent_coef" not in policy.kwargs:
        policy = dataclasses.replace(policy, kwargs={**policy.kwargs, "ent_coef": task.entropy})
    env = dataclasses.replace(env, segment_steps=env.segment_steps or 25)
    label = resolve_label(config.label, config.policy.steps, task.comparisons if task else None)
    query = dataclasses.replace(config.query, max_age=config.query.max_age or max(1, config.policy.steps // 10))
    return dataclasses.replace(config, env=env, policy=policy, label=label, query=query)
