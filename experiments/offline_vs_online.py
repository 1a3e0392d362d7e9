"""The same comparisons all at the start, or spread over training: when learned and true reward part.

    python -m experiments.offline_vs_online pendulum --steps 60000 --seeds 0-9 --out results/offline

A reward that is learned offline knows only what the untrained policy did; the trained one leaves that behind. For each
way, one figure shows learned and true return in the same plot, and one the accuracy of the reward model on what the
policy does at the time. One comparison in eleven is held out and never trained on: by these the watch over hacking
raises its alarm, and the table tells in how many of the runs that went wrong, and of those that went well, it stood at
the end. A run went wrong if its true return ended less than half of the way from the untrained policy to the best run;
where the best is no better than chance would make an untrained one, nothing was learned and nothing is told.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.curves import band
from experiments.figures import Series, Study, draw, first_points, known, save, slug, untrained
from experiments.methods import Settings
from experiments.study import main
from prefrl.report.markup import number

HELD_OUT = 1 / 11
LEARNED = 3.0  # standard deviations of untrained policies above their mean: there, a run has learned something
WAYS: dict[str, Settings] = {
    "online": {"label": {"held_out_share": HELD_OUT}},
    "offline": {"label": {"held_out_share": HELD_OUT, "schedule": "upfront"}},
}


def grid(args: argparse.Namespace) -> dict[str, Any]:
    """Both ways with every number of comparisons, those held out included."""
    axes = {"task": args.tasks, "method": list(WAYS), "labels": args.labels}
    return {"methods": WAYS, "grid": [{**axes, "seed": args.seeds, "steps": args.steps}]}


def parting(one: Series, title: str) -> Figure:
    """Learned and true return over agent steps in one plot, each on its own axis; dots where the alarm stands."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    true = figure.add_subplot()
    learned = true.twinx()
    for axes, metric, label, colour in (
        (true, "true_return", "true return", "#0072b2"),
        (learned, "learned_return", "learned return", "#d55e00"),
    ):
        curves = list(one.curves.get(metric, {}).values())
        for curve in curves:
            axes.plot(*np.transpose(curve), color=colour, linewidth=0.4, alpha=0.4)
        if curves:
            whole = band(curves)
            axes.plot(whole.steps, whole.middle, color=colour, linewidth=1.8)
        axes.set_ylabel(label, color=colour)
        axes.spines["top"].set_visible(False)
    for seed, alarms in one.curves.get("hacking_alarm", {}).items():
        steps = [step for step, alarm in alarms if alarm]
        curve = one.curves["true_return"][seed]
        true.plot(steps, np.interp(steps, *np.transpose(curve)), ".", color="black", markersize=3)
    true.set_xlabel("agent steps")
    true.set_title(f"{title} (n={len(one.cells)}; black: the alarm stands)", fontsize=9)
    true.grid(visible=True, linewidth=0.4)
    return figure


def went_wrong(series: dict[str, Series]) -> dict[str, dict[int, bool]]:
    """For each way and seed whether it ended less than half of the way from the untrained policy to the best run."""
    start, best = untrained(series), best_of(series)
    return {
        name: {cell["seed"]: known(cell["true_return"]) < (start + best) / 2 for cell in one.cells}
        for name, one in series.items()
    }


def best_of(series: dict[str, Series]) -> float:
    """True return of the best run of a task."""
    return max(known(cell["true_return"]) for one in series.values() for cell in one.cells)


def nothing_learned(series: dict[str, Series]) -> str:
    """In words that no run did better than an untrained policy, so that none went well; else an empty string."""
    start, spread, best = untrained(series), float(np.std(first_points(series))), best_of(series)
    if best > start + LEARNED * spread:
        return ""
    return (
        f"no run learned anything: the best ended at {number(best)}, the untrained policies have {number(start)} ± "
        f"{number(spread)}; nothing can be told of the alarm"
    )


def alarm_rates(series: dict[str, Series]) -> list[str]:
    """For runs that went wrong and those that went well, how many had an alarm at the end, and ever."""
    wrong = went_wrong(series)
    alarms = {
        (name, seed): [bool(alarm) for _, alarm in curve]
        for name, one in series.items()
        for seed, curve in one.curves.get("hacking_alarm", {}).items()
    }
    lines = []
    for went, word in ((True, "wrong"), (False, "well")):
        found = [
            alarms.get((name, seed), []) for name, seeds in wrong.items() for seed, bad in seeds.items() if bad is went
        ]
        at_end, ever = sum(bool(each and each[-1]) for each in found), sum(any(each) for each in found)
        runs = "1 run" if len(found) == 1 else f"{len(found)} runs"
        lines.append(f"{runs} went {word}: alarm at the end in {at_end}, at any time in {ever}")
    return lines


def finish(study: Study, out: Path) -> None:
    """Draw the partings and the accuracy, and print and keep the alarm's rates."""
    lines = []
    for task, series in study.items():
        for name, one in series.items():
            save(parting(one, f"{task}, {name}"), out / slug(f"{task}, {name}"))
        accuracy = draw(series, "accuracy", "pairs of the newest segments in the true order")
        save(accuracy, out / slug(f"{task}, accuracy"))
        none = nothing_learned(series)
        lines += [f"{task}: {line}" for line in ([none] if none else alarm_rates(series))]
        for name, seeds in went_wrong(series).items():
            ends = ", ".join(f"seed {c['seed']} {number(known(c['true_return']))}" for c in series[name].cells)
            wrong = "" if none else f"{sum(seeds.values())} of {len(seeds)} wrong: "
            lines.append(f"{task}: {name}: {wrong}{ends}")
    (out / "alarms.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(__doc__, grid, labels=[770], finish=finish)
