"""Names to plug-ins: built in, installed through entry points, or given as ``module:attribute``."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Mapping
from typing import Any

from prefrl.errors import ConfigError, describe, nearest


def find(kind: str, name: str, built_in: Mapping[str, Any]) -> Any:
    """Return the plug-in called ``name``.

    Args:
        kind: learner, selector, oracle or net; its entry-point group is ``prefrl.<kind>``.
        name: A built-in name, an entry point's name, or ``module:attribute``.
        built_in: The names that ship with prefrl.

    Raises:
        ConfigError: Unknown name, or the module or attribute cannot be imported.
    """
    if name in built_in:
        return built_in[name]
    if ":" in name:
        return _import(kind, name)
    installed = {e.name: e for e in importlib.metadata.entry_points(group=f"prefrl.{kind}")}
    if name in installed:
        try:
            return installed[name].load()
        except Exception as error:  # whatever its module does
            raise ConfigError(f"{kind} {name!r} cannot be imported: {describe(error)}") from error
    names = [*built_in, *installed]
    raise ConfigError(f"unknown {kind} {name!r}; known: {', '.join(names)}, or module:attribute{nearest(name, names)}")


def _import(kind: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the module does
        raise ConfigError(f"{kind} {name!r} cannot be imported: {describe(error)}") from error
