"""Figures and tables of a study that ``experiments.sweep`` has run: SVG, PNG, and one HTML page.

    python -m experiments.figures results/pendulum [--out FOLDER]

Reads ``cells.json`` and ``curves.parquet``; a study that is not complete is drawn as far as it is, and says so by its
numbers of seeds.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure

from experiments.curves import band, interval
from experiments.tables import read_tables
from prefrl.errors import ConfigError, PrefrlError
from prefrl.report.charts import inline
from prefrl.report.markup import escape, number, percent, section, table
from prefrl.report.style import CSS

# Okabe and Ito's colours, told apart by most eyes; the reference is black
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
REFERENCE = "rl"
Curve = list[tuple[float, float]]


@dataclass
class Series:
    """All runs of one method with one number of comparisons on one task.

    Attributes:
        cells: Their records, by seed.
        curves: By metric, the curve of each seed that has one.
    """

    cells: list[dict[str, Any]] = field(default_factory=list)
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)

    @property
    def final(self) -> list[float]:
        """True return of the last episodes of each seed."""
        return [known(cell["true_return"]) for cell in self.cells]


def untrained(series: Mapping[str, Series]) -> float:
    """True return of the policies of a task before they have learned anything: mean of the first points."""
    return float(np.mean(first_points(series)))


def first_points(series: Mapping[str, Series]) -> list[float]:
    """The first point of the true return of every run of a task."""
    return [curve[0][1] for one in series.values() for curve in one.curves["true_return"].values()]


def known(value: float | None) -> float:
    """A number, or NaN where it is not known."""
    return math.nan if value is None else float(value)


Study = dict[str, dict[str, Series]]  # task -> name of the series


def read_study(folder: Path) -> Study:
    """What a study has so far, the reference first.

    Raises:
        ConfigError: There is nothing to read.
    """
    try:
        cells, points = read_tables(folder)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} holds no study: `python -m experiments.sweep GRID --out {folder}` makes one, as do the other "
            "studies of experiments/"
        ) from error
    if not cells:
        raise ConfigError(f"no cell of {folder} is done yet: the command that began the study goes on with it")
    study: Study = {}
    for cell in sorted(cells, key=lambda cell: (cell["method"] != REFERENCE, cell["seed"])):
        study.setdefault(cell["task"], {}).setdefault(_name(cell), Series()).cells.append(cell)
    for row in points:
        series = study.get(row["task"], {}).get(_name(row))
        if series is None:  # a cell that was done between the two readings
            continue
        curves = series.curves.setdefault(row["metric"], {})
        curves.setdefault(row["seed"], []).append((row["env_steps"], row["value"]))
    return study


def _name(row: Mapping[str, Any]) -> str:
    return row["method"] if row["labels"] is None else f"{row['method']}, {row['labels']} comparisons"


def draw(series: Mapping[str, Series], metric: str, label: str) -> Figure:
    """One metric over agent steps: the interquartile mean of each series and its interval, single runs thin."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    colours = iter(COLOURS * 4)
    for name, one in series.items():
        curves = list(one.curves.get(metric, {}).values())
        if not curves:
            continue
        colour = "black" if name == REFERENCE else next(colours)
        for curve in curves:
            axes.plot(*np.transpose(curve), color=colour, linewidth=0.4, alpha=0.3)
        whole = band(curves)
        axes.fill_between(whole.steps, whole.low, whole.high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(whole.steps, whole.middle, color=colour, linewidth=1.8, label=f"{name} (n={len(curves)})")
    axes.set_xlabel("agent steps")
    axes.set_ylabel(label)
    axes.grid(visible=True, linewidth=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def rows(series: Mapping[str, Series]) -> list[list[str]]:
    """For each series its seeds, final true return with interval, share of the reference, and cost."""
    reference = float(np.mean(series[REFERENCE].final)) if REFERENCE in series else 0.0
    found = []
    for name, one in series.items():
        middle, low, high = interval([np.array(one.final)])
        share = percent(float(np.mean(one.final)) / reference) if reference > 0 else "-"  # of a loss no share
        each = ", ".join(number(value) for value in one.final)
        wall, cpu = (number(float(np.mean([known(cell[key]) for cell in one.cells]))) for key in ("wall_s", "cpu_s"))
        interval_ = f"{number(middle)} ({number(low)} to {number(high)})"
        found.append([name, str(len(one.cells)), interval_, number(float(np.mean(one.final))), share, each])
        found[-1] += [
            f"{wall} / {cpu}",
            ", ".join(sorted({commit for cell in one.cells for commit in cell["commits"]})),
        ]
    return found


def slug(name: str) -> str:
    """A name as that of a file: letters, digits and dashes."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")


def save(figure: Figure, path: Path) -> list[Path]:
    """Write a figure as SVG and PNG beside each other; ``path`` has no suffix."""
    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "prefrl"})  # text as text, the same bytes each time
    written = [path.parent / f"{path.name}.{suffix}" for suffix in ("svg", "png")]
    for one in written:
        figure.savefig(one, dpi=110, metadata={"Date": None} if one.suffix == ".svg" else None)
    return written


def print_rows(study: Study) -> None:
    """One line for each series: what its runs ended with."""
    for task, series in study.items():
        for row in rows(series):
            print(f"{task}: {row[0]}: {row[2]} over {row[1]} seeds, {row[4]} of the reference")


HEAD = ("method", "seeds", "interquartile mean (95 %)", "mean", "of rl", "each seed", "wall / CPU s", "commit")


def write_figures(study: Study, out: Path) -> list[Path]:
    """A figure of the true return for each task, and ``index.html`` with all of them and their tables."""
    out.mkdir(parents=True, exist_ok=True)
    parts, written = [], []
    for task, series in study.items():
        figure = draw(series, "true_return", "true return, mean of the last 20 episodes")
        written += save(figure, out / slug(task))
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        svg = inline(text.getvalue(), slug(task))
        parts.append(
            section(
                task, f"<figure class='wide'>{svg}</figure>", f"<div class='wide'>{table(HEAD, rows(series))}</div>"
            )
        )
    first = next(iter(next(iter(study.values())).values())).cells[0]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    page = out / "index.html"
    page.write_text(
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><title>Study</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{CSS} svg {{ background: white; }}</style></head><body><main><h1>{escape(', '.join(study))}</h1>"
        "<p class='lead'>Interquartile means over seeds with 95 % intervals by stratified bootstrap; thin lines are "
        f"single runs.</p>{''.join(parts)}<footer>{escape(first['machine'])}; {escape(versions)}</footer>"
        "</main></body></html>\n"
    )
    return [*written, page]


def main() -> None:
    """Read the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="the --out of the sweep")
    parser.add_argument("--out", type=Path, help="where to draw (default: the study's folder)")
    args = parser.parse_args()
    try:
        study = read_study(args.study)
        for path in write_figures(study, args.out or args.study):
            print(path)
    except PrefrlError as error:
        sys.exit(f"experiments.figures: {error}")
    print_rows(study)


if __name__ == "__main__":
    main()
