"""What the owner of a run has settled about labeling it; the Settings page changes it at any time."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from prefrl.config import LabelConfig
from prefrl.store.again import Mix
from prefrl.store.runs import Run

_NAMES = {one.name for one in fields(LabelConfig)}


def rules_of(run: Run) -> LabelConfig:
    """The labeling settings of a run, read a moment ago; what an older prefrl did not store is as usual."""
    label: Any = run.config.get("label")
    return LabelConfig(**{name: value for name, value in (label or {}).items() if name in _NAMES})


def mix_of(rules: LabelConfig) -> Mix:
    """What is asked again."""
    return Mix(rules.overlap, rules.repeat_share, rules.gold_share)
