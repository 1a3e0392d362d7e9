"""The columns of a file, and a run as a file sees it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefrl.errors import DataError
from prefrl.store.engine import Database
from prefrl.store.folder import refuse_clips
from prefrl.store.runs import get_run

FORMATS = (".parquet", ".jsonl")
EXPORTS = (*FORMATS, ".csv")  # a CSV has no segments, and cannot be imported
BATCH = 64  # rows in memory at once; also a Parquet row group, so a constant of the format
ARRAYS = ("obs", "act", "states")
SEGMENT = (
    "digest",
    *(f"{array}{part}" for array in ARRAYS for part in ("", "_shape", "_dtype")),
    *("env_index", "episode", "start", "env_steps", "source"),
)
REQUIRED = tuple(f"segment_{side}_{array}" for side in (1, 2) for array in ("obs", "act"))
LABELS = ("preference", "mu", "label")
COLUMNS = (
    *("uuid", "preference", "shown_left", "mu", "annotator", "response_ms", "created", "detail", "env_id", "spaces"),
    *(f"segment_{side}_{name}" for side in (1, 2) for name in SEGMENT),
)


@dataclass(frozen=True)
class Target:
    """What a file must agree with.

    Attributes:
        obs_shape: Shape of an observation.
        act_shape: Shape of a Box action; () for Discrete.
        n_actions: Number of Discrete actions, or None for Box.
    """

    run_id: int
    run_name: str
    env_id: str
    segment_steps: int
    obs_shape: tuple[int, ...]
    act_shape: tuple[int, ...]
    n_actions: int | None

    @property
    def spaces(self) -> dict[str, Any]:
        """The spaces as a file writes them."""
        return {"act_shape": list(self.act_shape), "n_actions": self.n_actions, "obs_shape": list(self.obs_shape)}


def target(db: Database, run_name: str) -> Target:
    """Finds the run and what its segments look like.

    Raises:
        StoreError: There is no such run.
        ConfigError: The run is a folder of videos, whose segments have no arrays.
        DataError: The run's record does not say what its segments look like.
    """
    run = get_run(db, run_name)
    refuse_clips(run, "import into")
    try:
        env, spaces = run.config["env"], run.versions["spaces"]
        return Target(
            run.id,
            run.name,
            str(env["id"]),
            int(env["segment_steps"]),
            tuple(spaces["obs_shape"]),
            tuple(spaces["act_shape"]),
            spaces["n_actions"],
        )
    except (KeyError, TypeError) as error:
        raise DataError(
            f"run {run_name!r}: its record lacks {error}, which export and import need: make the run with `prefrl run`"
        ) from error


def format_of(file: Path, formats: tuple[str, ...] = FORMATS) -> str:
    """The ending of a file's name, which is one of ``formats``.

    Raises:
        DataError: The name ends in something else.
    """
    suffix = file.suffix.lower()
    if suffix not in formats:
        found = f"the format {suffix!r}" if suffix else "a file without an ending"
        if suffix == ".csv":
            raise DataError(f"{file}: a .csv file holds no segments to learn from: use {' or '.join(formats)}")
        raise DataError(f"{file}: {found} is not supported (pickle and npz never are): use {' or '.join(formats)}")
    return suffix
