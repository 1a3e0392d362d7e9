"""Settings: defaults < file < flags, refusals by name, round trips, and help for everything."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefrl.cli import build_parser
from prefrl.config import EnvConfig, LabelConfig, PolicyConfig, QueryConfig, RewardConfig, RunConfig
from prefrl.errors import ConfigError
from prefrl.flags import SHORT, config_from, load_toml
from prefrl.resolve import resolve
from prefrl.settings import from_dict, settings, to_dict

INF, NAN = math.inf, math.nan
BAD: dict[str, list[Any]] = {  # just outside of what is allowed, for every number there is
    "env.horizon": [0],
    "env.segment_steps": [0],
    "policy.steps": [0, -1],
    "policy.n_envs": [0],
    "policy.n_steps": [0],
    "policy.sync_every": [0],
    "policy.checkpoint_every": [0],
    "policy.decay_steps": [-1],
    "policy.threads": [0],
    "reward.n_members": [0],
    "reward.learning_rate": [0.0, -1e-3, NAN, INF],
    "reward.batch_size": [0],
    "reward.pretrain_steps": [0],
    "reward.fit_steps": [-1],
    "reward.noise": [-0.01, 1.0, NAN],
    "reward.l2_initial": [-1e-9, NAN, INF],
    "reward.l2_low": [0.0, NAN],
    "reward.l2_high": [0.0, NAN, INF],
    "reward.dropout": [-0.1, 1.0, NAN],
    "reward.output_std": [0.0, NAN, INF],
    "query.candidate_factor": [0],
    "query.pool": [1],
    "query.segments_per_rollout": [0],
    "reward.window": [-1],
    "reward.max_age": [-1],
    "query.max_age": [-1],
    "label.budget": [0],
    "label.initial_fraction": [-0.01, 1.01, NAN],
    "label.tau": [-1],
    "label.max_lag": [-1],
    "label.ahead": [-1],
    "label.overlap": [0, 21],
    "label.repeat_share": [-0.01, 0.51, NAN],
    "label.gold_share": [-0.01, 0.51, NAN],
    "label.prefetch": [0, 11],
    "seed": [-1, 2**32],
}
GOOD: dict[str, list[Any]] = {  # the limits themselves
    "env.horizon": [25],
    "env.segment_steps": [1],
    "policy.steps": [1],
    "policy.n_envs": [1],
    "policy.n_steps": [1, None],
    "reward.noise": [0.0, 0.99],
    "reward.l2_initial": [0.0],
    "reward.dropout": [0.0, 0.99],
    "query.pool": [2],
    "reward.window": [0],
    "policy.decay_steps": [0],
    "reward.max_age": [0],
    "query.max_age": [0],
    "label.budget": [1, None],
    "label.initial_fraction": [0.0, 1.0],
    "label.tau": [0],
    "label.max_lag": [0, None],
    "label.ahead": [0, None],
    "label.overlap": [1, 20],
    "label.repeat_share": [0.0, 0.5],
    "label.gold_share": [0.0, 0.5],
    "label.prefetch": [1, 10],
    "seed": [0, 2**32 - 1],
}
CHOICES = {
    "env.ends": ["refuse", "reset", "allow"],
    "policy.learner": ["trpo", "a2c", "ppo", "my_module:MyLearner"],
    "policy.device": ["auto", "cpu", "cuda"],
    "reward.source": ["learned", "true"],
    "reward.device": ["auto", "cpu", "cuda"],
    "query.variance_of": ["probability", "logit"],
    "query.batch": ["top", "diverse"],
    "label.schedule": ["paper", "constant", "upfront"],
}


def _cases(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in table.items() for value in values]


def _nested(name: str, value: Any) -> dict[str, Any]:
    section, _, key = name.rpartition(".")
    return {section: {key: value}} if section else {key: value}


def _get(config: RunConfig, name: str) -> Any:
    section, _, key = name.rpartition(".")
    return getattr(getattr(config, section) if section else config, key)


def _cli(*flags: str) -> RunConfig:
    return config_from(build_parser().parse_args(["run", *flags]))


def _file(folder: Path, text: str) -> str:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


# defaults < file < flags


def test_without_anything_the_defaults() -> None:
    assert _cli() == RunConfig()


def test_defaults_then_the_file_then_flags(tmp_path: Path) -> None:
    path = _file(tmp_path, "seed = 5\n[label]\nbudget = 300\ntau = 7\n[policy]\nsteps = 1000\n")
    config = _cli("--config", path, "--label.budget", "400", "--policy.learner", "ppo")
    assert config.label.budget == 400  # flag over file
    assert config.label.tau == 7  # file over default
    assert config.policy.steps == 1000
    assert config.policy.learner == "ppo"  # flag over default
    assert config.seed == 5
    assert config.reward == RewardConfig()  # default


def test_a_flag_that_repeats_the_default_still_wins(tmp_path: Path) -> None:
    path = _file(tmp_path, "[label]\nbudget = 300\n")
    assert _cli("--config", path, "--label.budget", "700").label.budget == 700


def test_short_flags_are_the_long_ones() -> None:
    config = _cli("--labels", "50", "--steps", "9000", "--learner", "a2c", "--oracle", "none", "--selector", "random")
    assert (config.label.budget, config.policy.steps, config.policy.learner) == (50, 9000, "a2c")
    assert (config.label.oracle, config.query.selector) == ("none", "random")
    assert {s.name for s in settings()} >= set(SHORT.values())


def test_the_task_is_the_environments_id(tmp_path: Path) -> None:
    assert _cli("hopper").env.id == "hopper"
    assert _cli("hopper", "--env.id", "hopper").env.id == "hopper"
    path = _file(tmp_path, '[env]\nid = "walker"\n')
    assert _cli("--config", path).env.id == "walker"
    assert _cli("hopper", "--config", path).env.id == "hopper"
    with pytest.raises(ConfigError, match=r"given twice: hopper and --env\.id walker"):
        _cli("hopper", "--env.id", "walker")


def test_tables_on_the_command_line() -> None:
    assert _cli("--label.oracle_kwargs", "{beta = 2.0}").label.oracle_kwargs == {"beta": 2.0}
    config = _cli("--policy.kwargs", "{ent_coef = 0.0, net = [64, 64], schedule = {a = true}}")
    assert config.policy.kwargs == {"ent_coef": 0.0, "net": [64, 64], "schedule": {"a": True}}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("policy.steps", "1_000_000", 1_000_000),
        ("reward.learning_rate", "3e-4", 3e-4),
        ("reward.output_std", "2", 2.0),
        ("policy.normalize_obs", "false", False),
        ("env.id", "prefrl/Hopper-v0", "prefrl/Hopper-v0"),
        ("env.id", "true", "true"),  # a setting that is a word stays one
        ("label.oracle", "my_module:teacher", "my_module:teacher"),
        ("seed", "12", 12),
    ],
)
def test_flags_and_files_mean_the_same(tmp_path: Path, name: str, text: str, value: Any) -> None:
    by_flag = _get(_cli(f"--{name}", text), name)
    assert by_flag == value
    assert type(by_flag) is type(value)
    section, _, key = name.rpartition(".")
    quoted = f'"{text}"' if isinstance(value, str) else text
    path = _file(tmp_path, (f"[{section}]\n" if section else "") + f"{key} = {quoted}\n")
    assert _cli("--config", path) == _cli(f"--{name}", text)


# refusals


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"policy": {"stepz": 3}}, "unknown setting 'policy.stepz'; did you mean policy.steps?"),
        ({"polcy": {"steps": 3}}, "unknown setting 'polcy.steps'; did you mean policy.steps?"),
        ({"sead": 3}, "unknown setting 'sead'; did you mean seed?"),
        ({"polcy": {}}, "unknown section 'polcy'; did you mean policy?"),
        ({"xyzzy": 3}, "unknown setting 'xyzzy'"),
        ({"env": 3}, "unknown setting 'env'"),
        ({"steps": 3}, "unknown setting 'steps'"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_dict(values)


def test_a_quoted_dotted_name_is_read_as_the_setting(tmp_path: Path) -> None:
    assert _cli("--config", _file(tmp_path, '"policy.steps" = 77\n')).policy.steps == 77


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("policy.steps", 1.5, "must be int, not 1.5 (float)"),
        ("policy.steps", "many", "must be int, not 'many' (str)"),
        ("policy.steps", True, "must be int, not True (bool)"),
        ("policy.n_steps", "x", "must be int or nothing, not 'x' (str)"),
        ("reward.learning_rate", "fast", "must be float, not 'fast' (str)"),
        ("reward.learning_rate", False, "must be float, not False (bool)"),
        ("policy.normalize_obs", 1, "must be bool, not 1 (int)"),
        ("env.id", 3, "must be str, not 3 (int)"),
        ("env.id", ["a"], "must be str, not ['a'] (list)"),
        ("label.oracle_kwargs", "beta", "must be dict"),
        ("label.oracle_kwargs", [1], "must be dict"),
        ("seed", {}, "must be int, not {} (dict)"),
        ("policy.steps", None, "must be int, not None"),
    ],
)
def test_wrong_types_are_refused_by_name(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name} ") + ".*") as caught:
        from_dict(_nested(name, value))
    assert wanted in str(caught.value)


def test_wrong_values_on_the_command_line_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"policy\.steps must be int, not 'many'"):
        _cli("--steps", "many")
    with pytest.raises(ConfigError, match=r"label\.oracle_kwargs must be dict"):
        _cli("--label.oracle_kwargs", "beta=2")


@pytest.mark.parametrize(("name", "value"), _cases(BAD))
def test_numbers_out_of_bounds_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(name)} must be .*, not {re.escape(str(value))}$"):
        from_dict(_nested(name, value))


@pytest.mark.parametrize(("name", "value"), _cases(GOOD))
def test_the_bounds_themselves_are_allowed(name: str, value: Any) -> None:
    assert _get(from_dict(_nested(name, value)), name) == value


def test_every_number_has_a_bound_that_is_tested_here() -> None:
    numbers = {s.name for s in settings() if s.type in (int, float) or s.type == (int | None)}
    assert numbers == set(BAD)


@pytest.mark.parametrize(("name", "value"), _cases(CHOICES))
def test_every_choice_is_allowed(name: str, value: str) -> None:
    assert _get(from_dict(_nested(name, value)), name) == value


@pytest.mark.parametrize("name", CHOICES)
def test_other_choices_are_refused_with_the_nearest(name: str) -> None:
    wrong = CHOICES[name][0] + "x"
    message = f"{name} is {wrong!r}; it must be one of {CHOICES[name][0]}, "
    with pytest.raises(ConfigError, match=re.escape(message) + ".*" + f"did you mean {CHOICES[name][0]}"):
        from_dict(_nested(name, wrong))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward.l2_low \(2.0\) must be at most reward.l2_high \(1.5\)"):
        RunConfig(reward=RewardConfig(l2_low=2.0))
    with pytest.raises(ConfigError, match=r"env\.segment_steps is 30, longer than an episode"):
        RunConfig(env=EnvConfig(horizon=29, segment_steps=30))
    with pytest.raises(ConfigError, match=r"env\.segment_steps is 101, longer than an episode"):
        resolve(RunConfig(env=EnvConfig(id="pendulum", segment_steps=101)))  # the task's own horizon is 100


def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*nothing.toml"):
        load_toml(tmp_path / "nothing.toml")
    with pytest.raises(ConfigError, match=r"run.toml is not valid TOML: .*line 2"):
        _cli("--config", _file(tmp_path, "seed = 1\nlabel = = 3\n"))
    (tmp_path / "latin.toml").write_bytes(b'[env]\nid = "\xff"\n')
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*latin.toml"):
        load_toml(tmp_path / "latin.toml")


def test_a_section_that_is_no_table_is_refused_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run.toml: \[policy\] must be a table"):
        _cli("--config", _file(tmp_path, "policy = 3\n"), "--steps", "5")


# records


@pytest.mark.parametrize("section", [EnvConfig, PolicyConfig, RewardConfig, QueryConfig, LabelConfig, RunConfig])
def test_settings_cannot_be_changed(section: type) -> None:
    made = section()
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, 1)


def test_default_tables_are_not_shared() -> None:
    assert EnvConfig().kwargs is not EnvConfig().kwargs


WORDS = st.text("abé-/0", max_size=6)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**32 - 1),
        "env": st.fixed_dictionaries({}, optional={"id": WORDS, "horizon": st.integers(60, 10**6)}),
        "policy": st.fixed_dictionaries(
            {},
            optional={
                "steps": st.integers(1, 10**9),
                "normalize_obs": st.booleans(),
                "kwargs": st.dictionaries(WORDS, st.integers() | st.floats(-1, 1), max_size=3),
            },
        ),
        "reward": st.fixed_dictionaries(
            {}, optional={"learning_rate": st.floats(1e-6, 1), "noise": st.floats(0, 0.99), "device": st.just("auto")}
        ),
        "label": st.fixed_dictionaries({}, optional={"budget": st.integers(1, 10**6), "tau": st.integers(0, 10**9)}),
    },
)


@given(CONFIGS)
def test_a_configuration_survives_json(values: dict[str, Any]) -> None:
    config = from_dict(values)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    for section, content in values.items():
        for key, value in content.items() if isinstance(content, dict) else [(None, content)]:
            assert _get(config, f"{section}.{key}" if key else section) == value


def test_the_given_tables_are_copied() -> None:
    kwargs = {"beta": 1.0}
    config = from_dict({"label": {"oracle_kwargs": kwargs}})
    kwargs["beta"] = 9.0
    assert config.label.oracle_kwargs == {"beta": 1.0}


# help


def test_every_setting_has_a_help_text_and_a_flag() -> None:
    leaves = settings()
    sections = (EnvConfig, PolicyConfig, RewardConfig, QueryConfig, LabelConfig)
    assert len(leaves) == sum(len(dataclasses.fields(s)) for s in sections) + 2  # seed, preset
    for leaf in leaves:
        assert len(leaf.help) > 8, leaf.name
        assert leaf.help.endswith("."), leaf.name
    parser_help = re.sub(r"\s+", " ", _run_help())
    for leaf in leaves:
        assert f"--{leaf.name}" in parser_help
        assert re.sub(r"\s+", "", leaf.help) in re.sub(r"\s+", "", parser_help), leaf.name


def _run_help() -> str:
    from argparse import _SubParsersAction

    parser = build_parser()
    verbs = next(a for a in parser._actions if isinstance(a, _SubParsersAction))
    text: str = verbs.choices["run"].format_help()
    return text


def test_defaults_are_those_of_the_dataclasses() -> None:
    for leaf in settings():
        assert leaf.default == _get(RunConfig(), leaf.name)


# what the task and the learner decide


@pytest.mark.parametrize(
    ("task", "horizon", "segment_steps", "entropy"),
    [
        ("cheetah", 1000, 30, 0.01),
        ("hopper", 1000, 60, 0.01),
        ("walker", 1000, 45, 0.01),
        ("ant", 1000, 30, 0.01),
        ("swimmer", 1000, 60, 0.001),
        ("reacher", 50, 15, 0.01),
        ("pendulum", 100, 15, 0.01),
        ("double-pendulum", 100, 15, 0.01),
        ("prefrl/Swimmer-v0", 1000, 60, 0.001),
    ],
)
def test_resolve_fills_in_the_tasks_values(task: str, horizon: int, segment_steps: int, entropy: float) -> None:
    config = resolve(RunConfig(env=EnvConfig(id=task)))
    assert (config.env.horizon, config.env.segment_steps) == (horizon, segment_steps)
    assert config.policy.kwargs == {"ent_coef": entropy}
    assert config.policy.n_steps == 512
    assert config.label.tau == config.query.max_age == 30_000


@pytest.mark.parametrize(
    ("steps", "fit_steps"), [(1, 200), (300_000, 200), (600_000, 102), (1_000_000, 61), (20_000_000, 20)]
)
def test_a_run_has_about_as_many_minibatches_whatever_its_length(steps: int, fit_steps: int) -> None:
    config = RunConfig(policy=PolicyConfig(steps=steps, sync_every=1024))
    assert resolve(config).reward.fit_steps == fit_steps
    asked = dataclasses.replace(config, reward=RewardConfig(fit_steps=7))
    assert resolve(asked).reward.fit_steps == 7


def test_resolve_keeps_what_was_set() -> None:
    config = RunConfig(
        env=EnvConfig(id="hopper", horizon=500, segment_steps=20),
        policy=PolicyConfig(n_steps=64, kwargs={"ent_coef": 0.5, "gamma": 0.9}),
        reward=RewardConfig(fit_steps=7),
        query=QueryConfig(max_age=5),
        label=LabelConfig(budget=30, tau=9, oracle="none", max_lag=0, ahead=3, held_out_share=0.2),
    )
    assert resolve(config) == config


@pytest.mark.parametrize(
    ("label", "share"),
    [
        (LabelConfig(budget=700), 0.0),
        (LabelConfig(budget=200, oracle="none"), 0.0),
        (LabelConfig(budget=300, oracle="none"), 0.05),
        (LabelConfig(budget=200, oracle="none", held_out_share=0.1), 0.1),
    ],
)
def test_comparisons_are_held_out_where_they_are_enough_to_say_anything(label: LabelConfig, share: float) -> None:
    assert resolve(RunConfig(label=label)).label.held_out_share == share


@pytest.mark.parametrize(
    ("task", "label", "budget", "max_lag", "ahead"),
    [
        ("hopper", LabelConfig(), 700, 0, 0),
        ("CartPole-v1", LabelConfig(), 700, 0, 0),
        ("hopper", LabelConfig(oracle="none"), 700, 14, 8),
        ("hopper", LabelConfig(oracle="none", budget=50), 50, 8, 8),
        ("backflip-hopper", LabelConfig(oracle="none"), 900, 18, 8),
        ("prefrl/OneLegCheetah-v0", LabelConfig(oracle="none"), 800, 16, 8),
        ("backflip-hopper", LabelConfig(oracle="none", budget=700, max_lag=0, ahead=0), 700, 0, 0),
    ],
)
def test_resolve_fills_in_how_many_comparisons_and_how_long_people_are_waited_for(
    task: str, label: LabelConfig, budget: int, max_lag: int, ahead: int
) -> None:
    found = resolve(RunConfig(env=EnvConfig(id=task), label=label)).label
    assert (found.budget, found.max_lag, found.ahead) == (budget, max_lag, ahead)


@given(st.sampled_from(["hopper", "pendulum", "CartPole-v1"]), st.sampled_from(["trpo", "a2c", "ppo"]))
def test_resolving_twice_changes_nothing(task: str, learner: str) -> None:
    once = resolve(RunConfig(env=EnvConfig(id=task), policy=PolicyConfig(learner=learner)))
    assert resolve(once) == once


def test_the_entropy_bonus_is_trpos_and_a2c_takes_short_rollouts() -> None:
    ppo, a2c = (resolve(RunConfig(policy=PolicyConfig(learner=name))) for name in ("ppo", "a2c"))
    assert "ent_coef" not in ppo.policy.kwargs
    assert (ppo.policy.n_steps, a2c.policy.n_steps) == (1024, 5)


def test_other_environments_keep_their_own_horizon() -> None:
    config = resolve(RunConfig(env=EnvConfig(id="CartPole-v1")))
    assert config.env.horizon is None
    assert config.env.segment_steps == 25
    assert config.policy.kwargs == {}


def test_very_short_runs_resolve() -> None:
    config = resolve(RunConfig(policy=PolicyConfig(steps=3)))
    assert config.label.tau == config.query.max_age == 1


@pytest.mark.parametrize(("section", "name"), [("policy", "steps"), ("label", "budget")])
def test_whole_numbers_fit_any_database(section: str, name: str) -> None:
    assert from_dict({section: {name: 10**15}})
    with pytest.raises(
        ConfigError, match=rf"{section}.{name} must be at most 1,000,000,000,000,000, not 1000000000000001"
    ):
        from_dict({section: {name: 10**15 + 1}})
