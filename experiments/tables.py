"""The two tables of a study: ``cells.json``, a record a cell, and ``curves.parquet``, a row a point."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.cells import DONE, result_of, state_of, write_result
from prefrl.errors import ConfigError

WHICH = ("task", "method", "labels", "seed")  # columns that name the run of a point


def write_tables(out: Path, folders: Iterable[Path]) -> None:
    """All results of a study as ``cells.json`` and ``curves.parquet``, by one runner at a time."""
    with (out / "tables.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _write_tables(out, folders)


def _write_tables(out: Path, folders: Iterable[Path]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    results = [result_of(folder) for folder in folders if state_of(folder) == DONE]
    points: dict[str, list[Any]] = {name: [] for name in (*WHICH, "metric", "env_steps", "value")}
    for result in results:
        curves = result.pop("curves")
        for metric, curve in curves.items():
            for env_steps, value in curve:
                row = (*(result[k] for k in WHICH), metric, env_steps, value)
                for column, entry in zip(points.values(), row, strict=True):
                    column.append(entry)
    half = out / f"cells.json.{os.getpid()}"
    half.write_text("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")
    half.replace(out / "cells.json")
    half = out / f"curves.parquet.{os.getpid()}"
    labels = pa.array(points.pop("labels"), pa.int64())
    parquet.write_table(pa.table({**points, "labels": labels}), half)
    half.replace(out / "curves.parquet")


def read_tables(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Records of cells, and points of their curves.

    Raises:
        OSError: There are none.
        ValueError: They cannot be read.
    """
    from pyarrow import parquet

    return json.loads((out / "cells.json").read_text()), parquet.read_table(out / "curves.parquet").to_pylist()


def put_back(out: Path) -> None:
    """Give every cell of the tables that has no result in a folder of its own that of the tables.

    Raises:
        ConfigError: There are tables that cannot be read; nothing is written then.
    """
    if not (out / "cells.json").exists():
        return
    try:
        cells, points = read_tables(out)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the tables of {out} (cells.json and curves.parquet) cannot be read ({error}), and would be written anew: "
            "put both back, or choose another --out"
        ) from error
    curves: dict[tuple[Any, ...], dict[str, list[tuple[int, float]]]] = {}
    for point in points:
        curve = curves.setdefault(tuple(point[k] for k in WHICH), {}).setdefault(point["metric"], [])
        curve.append((point["env_steps"], point["value"]))
    for cell in cells:
        folder = out / "cells" / cell["cell"]
        if state_of(folder) != DONE:
            folder.mkdir(parents=True, exist_ok=True)
            write_result(folder, {**cell, "curves": curves.get(tuple(cell[k] for k in WHICH), {})})
