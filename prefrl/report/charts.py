"""The charts, drawn by matplotlib as SVG that takes its colours from the page (light or dark)."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from prefrl.report.facts import Series
from prefrl.report.numbers import Calibration, Floats, wilson
from prefrl.reward_model.held_out import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, INK, FAINT = "#2a78d6", "#d95926", "#010203", "#010204"  # stand-ins, see THEMED
THEMED = {BLUE: "var(--blue)", ORANGE: "var(--orange)", INK: "currentColor", FAINT: "var(--faint)"}
SIZE = (4.6, 2.8)  # inches: at 390 px of screen the letters are still 9 px high
N_POINTS = 400  # of a curve: more cannot be seen, and would make the page heavy
STYLE: Any = {  # matplotlib types the keys one by one
    "text.usetex": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "prefrl",
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.5,
}


def chart(name: str, paint: Callable[[Axes], None]) -> str:
    """Draw one pair of axes; returns an ``<svg>`` element to be put into a page.

    Args:
        name: Letters and dashes, unique in the page.
        paint: Draws into the axes.
    """
    return _svg(name, lambda figure: paint(figure.add_subplot()))


def _svg(name: str, paint: Callable[[Figure], None]) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    buffer = io.StringIO()
    with rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained", facecolor="none")
        paint(figure)
        no_links: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=no_links, transparent=True)
    return inline(buffer.getvalue(), name)


def inline(svg: str, name: str) -> str:
    """Make a stand-alone SVG fit to be one of several in a page: own ids, the page's colours and letters."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", svg)
    svg = re.sub(r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', r'<svg \1 aria-hidden="true">', svg, count=1)
    for stand_in, themed in THEMED.items():
        svg = svg.replace(stand_in, themed)
    return re.sub(r"\n\s*", "\n", svg).strip()


def thin(series: Series, n: int = N_POINTS) -> Series:
    """At most ``n`` points: neighbours are averaged."""
    if len(series) <= n:
        return series
    cuts = np.linspace(0, len(series), n + 1).astype(np.int64)[:-1]
    count = np.diff([*cuts, len(series)])
    return Series(np.add.reduceat(series.steps, cuts) / count, np.add.reduceat(series.values, cuts) / count)


def over_steps(ax: Axes, end: float, label: str) -> None:
    """The axes of everything that is drawn over the run."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    ax.set_xlim(0, 1.02 * max(end, 1))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.set_xlabel("agent steps")
    ax.set_ylabel(label)


def curve(ax: Axes, series: Series, colour: str, label: str | None = None, style: str = "-") -> None:
    """A line; with marks as long as there are few points, so that a single one can be seen."""
    thinned = thin(series)
    marker = "o" if len(thinned) <= 40 and style == "-" else None
    ax.plot(thinned.steps, thinned.values, style, color=colour, marker=marker, label=label)


def mark_versions(ax: Axes, steps: Floats) -> None:
    """A short tick on the lower edge for each reward version."""
    ax.plot(
        steps,
        np.zeros(len(steps)),
        "|",
        color=INK,
        alpha=0.45,
        markersize=8,
        markeredgewidth=0.7,
        transform=ax.get_xaxis_transform(),
    )


def returns(name: str, series: Series, end: float, versions: Floats, colour: str, label: str) -> str:
    """Return of an episode over the run."""

    def paint(ax: Axes) -> None:
        over_steps(ax, end, label)
        curve(ax, series, colour)
        mark_versions(ax, versions)

    return chart(name, paint)


def held_out(looks: Sequence[Look], end: float) -> str:
    """Share of held-out comparisons in which the newer clip is preferred, and the share that the reward expects."""
    steps = np.array([look.env_steps for look in looks], np.float64)

    def paint(ax: Axes) -> None:
        over_steps(ax, end, "newer clip preferred")
        ax.set_ylim(0, 1)
        ax.axhline(0.5, linestyle="--", color=INK, alpha=0.5, linewidth=0.8)
        for name, colour, label, style in (("claimed", ORANGE, "expected", "--"), ("seen", BLUE, "seen", "-")):
            shares = np.array([getattr(look.window, name) / look.window.n for look in looks])
            curve(ax, Series(steps, shares), colour, label, style)
        ax.legend(loc="lower right")

    return chart("held-out", paint)


def correlations(series: Series, end: float) -> str:
    """Rank correlation of learned and true segment returns over the run."""

    def paint(ax: Axes) -> None:
        over_steps(ax, end, "rank correlation")
        low = float(np.nanmin(series.values, initial=0.0))
        ax.set_ylim(-1.04 if low < -0.1 else min(-0.02, low - 0.02), 1.04)
        ax.axhline(0, color=INK, linewidth=0.8)
        curve(ax, series, BLUE)

    return chart("correlations", paint)


def scatter(learned: Floats, true: Floats) -> str:
    """Learned against true segment returns."""

    def paint(ax: Axes) -> None:
        ax.plot(true, learned, "o", color=BLUE, alpha=0.5, markeredgewidth=0)
        ax.set_xlabel("true segment return")
        ax.set_ylabel("learned segment return")

    return chart("scatter", paint)


def calibration(result: Calibration) -> str:
    """Observed against predicted probability, with the number of comparisons underneath."""

    def paint(figure: Figure) -> None:
        top, low = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        predicted = [b.predicted for b in result.bins]
        observed = np.array([b.observed for b in result.bins])
        spans = np.array([wilson(b.n_first, b.n) for b in result.bins]).T  # (2, bins)
        top.plot([0, 1], [0, 1], "--", color=INK, linewidth=0.8)
        top.errorbar(predicted, observed, np.abs(spans - observed), fmt="o", color=BLUE, elinewidth=0.9, capsize=2)
        top.set_ylim(-0.04, 1.04)
        top.set_ylabel("observed")
        tenths = [b.place / 10 + 0.05 for b in result.bins]
        low.bar(tenths, [b.n for b in result.bins], width=0.09, color=BLUE)
        for place, one in zip(tenths, result.bins, strict=True):
            low.annotate(
                f"{one.n}", (place, one.n), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=7
            )
        low.set_ylim(0, 1.35 * max(b.n for b in result.bins))
        low.set_yticks([])
        low.grid(visible=False)
        low.set_xlim(0, 1)
        low.set_ylabel("count")
        low.set_xlabel("predicted probability that segment 1 is preferred")

    return _svg("calibration", paint)


def comparisons(done: Series, planned: Series, now: float, end: float, budget: int) -> str:
    """Comparisons over the run, against the schedule."""

    def paint(ax: Axes) -> None:
        over_steps(ax, end, "comparisons")
        first = Series(np.array([planned.steps[0]]), np.zeros(1))
        curve(ax, _join(first, planned), INK, "schedule", "--")
        if len(done):
            steps = np.concatenate([done.steps, [max(now, done.steps[-1])]])
            values = np.concatenate([done.values, done.values[-1:]])
            ax.step(steps, values, where="post", color=BLUE, label="answered")
        ax.set_ylim(0, 1.05 * max([budget, *done.values]))
        ax.legend(loc="lower right")

    return chart("comparisons", paint)


def losses(train: Series, held_out: Series, end: float) -> str:
    """Training and out-of-bag loss of each reward version."""

    def paint(ax: Axes) -> None:
        over_steps(ax, end, "loss (nats)")
        ax.axhline(np.log(2), color=INK, linewidth=0.8, linestyle="--", label="coin toss")
        curve(ax, train, BLUE, "training")
        curve(ax, held_out, ORANGE, "out of bag")
        top = np.nanmax([*train.values, *held_out.values, np.log(2)])
        ax.set_ylim(0, 1.3 * float(top))
        ax.legend(loc="upper center", ncols=3, columnspacing=1.2, handlelength=1.4)

    return chart("losses", paint)


def ratio(series: Series, low: float, high: float, end: float) -> str:
    """Out-of-bag over training loss, with the band in which L2 stays as it is."""

    def paint(ax: Axes) -> None:
        from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

        over_steps(ax, end, "loss ratio")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(FixedLocator([0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100]))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.axhspan(low, high, color=BLUE, alpha=0.16, linewidth=0)
        curve(ax, series, BLUE)
        _include(ax, low * 0.8, high * 1.25)

    return chart("ratio", paint)


def accuracy(series: Series, end: float) -> str:
    """Out-of-bag accuracy of each reward version."""

    def paint(ax: Axes) -> None:
        over_steps(ax, end, "accuracy")
        ax.axhline(0.5, color=INK, linewidth=0.8, linestyle="--")
        curve(ax, series, BLUE)
        ax.set_ylim(min(0.4, float(np.nanmin(series.values)) - 0.05), 1.02)

    return chart("accuracy", paint)


def l2(series: Series, end: float) -> str:
    """The L2 coefficient of each reward version."""

    def paint(ax: Axes) -> None:
        over_steps(ax, end, "L2 coefficient")
        ax.set_yscale("log")
        curve(ax, series, BLUE)
        _include(ax, float(np.nanmin(series.values)) / 2, float(np.nanmax(series.values)) * 2)

    return chart("l2", paint)


def _include(ax: Axes, low: float, high: float) -> None:
    bottom, top = ax.get_ylim()
    ax.set_ylim(min(bottom, low), max(top, high))


def _join(*parts: Series) -> Series:
    return Series(np.concatenate([p.steps for p in parts]), np.concatenate([p.values for p in parts]))
