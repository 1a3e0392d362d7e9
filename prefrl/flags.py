"""The settings of a run as flags of the command line, and as a TOML file."""

from __future__ import annotations

import argparse
import tomllib
import typing
from pathlib import Path
from typing import Any

from prefrl.config import RunConfig, Setting, from_dict, settings
from prefrl.errors import ConfigError

SHORT = {
    "labels": "label.budget",
    "steps": "policy.steps",
    "learner": "policy.learner",
    "oracle": "label.oracle",
    "selector": "query.selector",
    "seed": "seed",
}


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for every setting, those of a section together."""
    short = {full: name for name, full in SHORT.items()}
    section = ""
    group: Any = parser
    for setting in settings():
        head = setting.name.partition(".")[0]
        if head != section:
            section, group = head, parser.add_argument_group(f"settings: {head}")
        flags = [f"--{setting.name}"]
        if setting.name in short and short[setting.name] != setting.name:
            flags.insert(0, f"--{short[setting.name]}")
        default = "" if setting.default in (None, {}) else f" (default: {setting.default})"
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


def config_from(args: argparse.Namespace) -> RunConfig:
    """Defaults < file < flags."""
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
    for setting in settings():
        text = getattr(args, setting.name)
        if text is None:
            continue
        section, _, key = setting.name.partition(".")
        value = parse_value(setting, text)
        if key:
            inner = values.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{args.config}: [{section}] must be a table of settings, not {inner!r}")
            inner[key] = value
        else:
            values[section] = value
    config = from_dict(values)
    if args.human and config.reward.source == "true":
        raise ConfigError("--human and --reward.source true exclude each other: nothing is compared on the true reward")
    return config


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
