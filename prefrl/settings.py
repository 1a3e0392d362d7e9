"""The settings of a run as a flat list for the command line, and as nested dictionaries for files and the database."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefrl.config import RunConfig
from prefrl.errors import ConfigError, nearest
from prefrl.presets import beneath, merged


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


def from_given(values: Mapping[str, Any]) -> RunConfig:
    """Build a RunConfig from what a person gives, over what the task and the preset set (`prefrl.presets`).

    Raises:
        ConfigError: As for ``from_dict``; or the preset is not for this task.
    """
    given = from_dict(values)  # its names and types are right from here on
    return from_dict(merged(beneath(given.env.id, given.preset), values))


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
