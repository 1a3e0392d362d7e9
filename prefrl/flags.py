"""The settings of a run as flags of the command line, and as a TOML file."""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefrl.config import RunConfig
from prefrl.errors import ConfigError
from prefrl.settings import Setting, from_given, settings

SHORT = {
    "labels": "label.budget",
    "steps": "policy.steps",
    "learner": "policy.learner",
    "oracle": "label.oracle",
    "selector": "query.selector",
    "reward": "reward.origin",
    "seed": "seed",
}
SHORT_OF_FIT = {"steps": "reward.pretrain_steps", "seed": "seed"}
MINIBATCHES = "Minibatches for each member."
NOT_OF_FIT = {"reward.source", "reward.origin", "reward.fit_steps", "reward.max_age"}


def settings_of_fit() -> list[Setting]:
    """What a reward can be fitted with, without a policy; the defaults are the run's."""
    known = {s.name: dataclasses.replace(s, default=None) for s in settings()}
    known["reward.pretrain_steps"] = dataclasses.replace(known["reward.pretrain_steps"], help=MINIBATCHES)
    names = [name for name in known if name.startswith("reward.") and name not in NOT_OF_FIT]
    return [known[name] for name in (*names, "seed")]


def add_settings(parser: argparse.ArgumentParser, shown: Sequence[Setting], names: Mapping[str, str] = SHORT) -> None:
    """A flag for each setting, those of a section together; ``names`` are shorter ones."""
    short = {full: name for name, full in names.items()}
    section = ""
    group: Any = parser
    for setting in shown:
        head = setting.name.partition(".")[0]
        if head != section:
            section, group = head, parser.add_argument_group(f"settings: {head}")
        flags = [f"--{setting.name}"]
        if setting.name in short and short[setting.name] != setting.name:
            flags.insert(0, f"--{short[setting.name]}")
        default = "" if setting.default in (None, {}, "") else f" (default: {setting.default})"
        text = (setting.help + default).replace("%", "%%")
        group.add_argument(*flags, dest=setting.name, metavar=_metavar(setting), help=text)


def _metavar(setting: Setting) -> str:
    for kind, name in ((bool, "true|false"), (int, "N"), (float, "X"), (dict, "{key=value}")):
        if (
            setting.type == kind
            or kind in getattr(setting.type, "__args__", ())
            or (kind is dict and "dict" in str(setting.type))
        ):
            return name
    return "NAME"


def given_from(args: argparse.Namespace) -> dict[str, Any]:
    """What a person gives, as nested dictionaries: file < flags."""
    values = load_toml(args.config) if args.config else {}
    if args.task is not None:
        if getattr(args, "env.id") not in (None, args.task):
            raise ConfigError(f"the task is given twice: {args.task} and --env.id {getattr(args, 'env.id')}")
        setattr(args, "env.id", args.task)
    if args.human:
        oracle = getattr(args, "label.oracle")
        if oracle not in (None, "none"):
            raise ConfigError(f"--human and --oracle {oracle} exclude each other: who compares the clips?")
        setattr(args, "label.oracle", "none")
    if getattr(args, "reward.origin") is not None and getattr(args, "reward.source") is None:
        setattr(args, "reward.source", "frozen")
    return with_flags(values, args, settings(), str(args.config))


def config_from(args: argparse.Namespace) -> RunConfig:
    """Defaults < task < preset < file < flags.

    Raises:
        ConfigError: A setting is wrong, or a flag is about comparisons and nothing will be compared.
    """
    config = from_given(given_from(args))
    if config.reward.source == "learned":
        return config
    if args.human:
        raise ConfigError(
            f"--human and --reward.source {config.reward.source} exclude each other: nothing is compared on the "
            f"{config.reward.source} reward"
        )
    for name in (setting.name for setting in settings() if setting.name.startswith(("label.", "query."))):
        if getattr(args, name) is not None:
            short = next((flag for flag, full in SHORT.items() if full == name), name)
            raise ConfigError(
                f"--{short} and the {config.reward.source} reward exclude each other: nothing is compared on it; leave "
                f"--{short} out"
            )
    return config


def with_flags(
    values: Mapping[str, Any], args: argparse.Namespace, given: Sequence[Setting], source: str
) -> dict[str, Any]:
    """Settings as nested dictionaries, with those among ``given`` that have a flag in place of the old ones.

    Raises:
        ConfigError: What should be a section of ``source`` is none.
    """
    changed = dict(values)
    for setting in given:
        text = getattr(args, setting.name)
        if text is None:
            continue
        section, _, key = setting.name.partition(".")
        value = parse_value(setting, text)
        if key:
            inner = changed.get(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{source}: [{section}] must be a table of settings, not {inner!r}")
            changed[section] = {**inner, key: value}
        else:
            changed[section] = value
    return changed


def parse_value(setting: Setting, text: str) -> Any:
    """Read a flag's text as a TOML value, so that flags and files mean the same; bare words are strings."""
    if setting.type is str:
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    wanted = typing.get_args(setting.type) or (setting.type,)
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole and int in wanted and float not in wanted else value  # 1e5


def load_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file.

    Raises:
        ConfigError: The file cannot be read or is not TOML; names the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
