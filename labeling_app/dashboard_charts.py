"""The dashboard's charts as Altair specifications; Streamlit's theme gives them the page's colours, light or dark."""

from __future__ import annotations

import math
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from prefrl.config import RunConfig
from prefrl.report.charts import thin
from prefrl.report.facts import Series, counted, schedule, version_series
from prefrl.report.numbers import wilson
from prefrl.reward_model.calibration import Calibration
from prefrl.reward_model.held_out import Look
from prefrl.types import Comparison, RewardVersion

GREY = "#888888"  # seen on white and on black
DASH = [6, 4]
HEIGHT = 260
Rows = list[dict[str, Any]]
Picture = Any  # a layered chart; the types that Altair gives it differ from version to version


def rows_of(series: Series, name: str) -> Rows:
    """At most 400 points of a series; what is not finite is left out."""
    points = thin(series)
    pairs = zip(points.steps.tolist(), points.values.tolist(), strict=True)
    return [{"steps": x, "value": y, "what": name} for x, y in pairs if math.isfinite(x) and math.isfinite(y)]


def lines(rows: Rows, steps: str, value: str, *, level: float | None = None, step: bool = False) -> Picture:
    """Lines over agent steps, one for each name; with marks where there are few points.

    Args:
        rows: From `rows_of`.
        steps: Title of the horizontal axis.
        value: Title of the vertical one.
        level: Where to draw a dashed horizontal line.
        step: Whether the number jumps, as a count does.
    """
    legend = alt.Legend(orient="top") if _several(rows) else None
    base = alt.Chart(pd.DataFrame(rows)).encode(
        x=alt.X("steps:Q", title=steps, axis=alt.Axis(labelExpr="format(datum.value, '~s')")),
        y=alt.Y("value:Q", title=value, scale=alt.Scale(zero=False)),
        color=alt.Color("what:N", title=None, legend=legend),
        # not by colour alone: the second line is dashed
        strokeDash=alt.StrokeDash("what:N", title=None, legend=legend, scale=alt.Scale(range=[[1, 0], DASH])),
        tooltip=[
            alt.Tooltip("what:N"),
            alt.Tooltip("steps:Q", title=steps, format=",.0f"),
            alt.Tooltip("value:Q", title=value, format=".4~g"),
        ],
    )
    point: Any = {"size": 30} if len(rows) <= 80 else False
    layers: list[Picture] = [base.mark_line(point=point, interpolate="step-after" if step else "linear")]
    if level is not None:
        layers.append(_rule(level))
    return alt.layer(*layers).properties(height=HEIGHT)


def comparisons(standing: tuple[Comparison, ...], config: RunConfig, now: int, words: dict[str, str]) -> Picture:
    """Comparisons that count for the budget against the schedule, over agent steps."""
    planned = rows_of(schedule(config), words["schedule"])
    done = rows_of(counted(standing), words["answered"])
    if done:
        done.insert(0, {**done[0], "steps": 0, "value": 0.0})
        done.append({**done[-1], "steps": max(now, done[-1]["steps"])})
    return lines([*planned, *done], words["steps"], words["comparisons"], step=True)


def held_out(looks: list[Look], words: dict[str, str]) -> Picture:
    """Share of held-out comparisons in which the newer clip is preferred, and the share that the reward expects."""
    steps = np.array([look.env_steps for look in looks], np.float64)
    shares = {
        name: np.array([getattr(look.window, name) / look.window.n for look in looks]) for name in ("seen", "claimed")
    }
    rows = [row for name, values in shares.items() for row in rows_of(Series(steps, values), words[name])]
    return lines(rows, words["steps"], words["share"], level=0.5)


def losses(versions: tuple[RewardVersion, ...], words: dict[str, str]) -> Picture | None:
    """Training and held-out loss of each reward version; a coin has ln 2."""
    rows = [
        row
        for name, label in (("train_loss", words["train"]), ("oob_loss", words["held_out"]))
        for row in rows_of(version_series(versions, name), label)
    ]
    return lines(rows, words["steps"], words["loss"], level=math.log(2)) if rows else None


def accuracy(versions: tuple[RewardVersion, ...], words: dict[str, str]) -> Picture | None:
    """Held-out accuracy of each reward version; a coin has one half."""
    rows = rows_of(version_series(versions, "oob_accuracy"), words["held_out"])
    return lines(rows, words["steps"], words["accuracy"], level=0.5) if rows else None


def calibration(result: Calibration, words: dict[str, str]) -> Picture | None:
    """Observed share against predicted probability with 95 % intervals; the diagonal is perfect."""
    rows = []
    for one in result.bins:
        low, high = wilson(one.n_first, one.n)
        rows.append({"p": one.predicted, "y": one.observed, "low": low, "high": high, "n": one.n})
    if not rows:
        return None
    unit = alt.Scale(domain=[0, 1])
    diagonal = alt.Chart(pd.DataFrame([{"p": 0, "y": 0}, {"p": 1, "y": 1}])).mark_line(color=GREY, strokeDash=DASH)
    ends: list[Any] = [
        alt.X("p:Q", scale=unit, title=words["predicted"]),
        alt.Y("y:Q", scale=unit, title=words["observed"]),
    ]
    base = alt.Chart(pd.DataFrame(rows)).encode(x=ends[0])
    marks = base.mark_circle(opacity=1).encode(
        y=ends[1],
        size=alt.Size("n:Q", title=words["count"], scale=alt.Scale(range=[40, 300]), legend=None),
        tooltip=[alt.Tooltip(f"{k}:Q", title=words[w], format=".3~g") for k, w in _CALIBRATION_TIPS],
    )
    bars = base.mark_rule(color=GREY, strokeWidth=2).encode(
        y=alt.Y("low:Q", scale=unit, title=words["observed"]), y2="high:Q"
    )
    return alt.layer(diagonal.encode(x=ends[0], y=ends[1]), bars, marks).properties(height=HEIGHT)


_CALIBRATION_TIPS = (("p", "predicted"), ("y", "observed"), ("n", "count"))


def _rule(level: float) -> Picture:
    where = alt.Chart(pd.DataFrame([{"value": level}]))
    return where.mark_rule(color=GREY, strokeDash=DASH).encode(y="value:Q")


def _several(rows: Rows) -> bool:
    return len({row["what"] for row in rows}) > 1
