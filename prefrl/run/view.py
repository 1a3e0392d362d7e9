"""The live terminal view of a run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from prefrl.report.markup import duration
from prefrl.report.ranking import Ranked
from prefrl.reward_model.held_out import ALARM, window_words
from prefrl.run.status import Status

PLAIN_EVERY_S = 10.0
SHOW_EVERY_S = 1.0  # how often a run has something to show
EXPLOITED = "the reward may be exploited: look at the newest clips"
STOPPING = "stopping; once more to stop at once"


class View:
    """Shows a run's status: a table that refreshes on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._first: tuple[float, int] | None = None
        self._moved = 0.0  # when a step was last seen to be made: a run that waits is not a slow one
        self._steps = -1
        self._printed, self._said = 0.0, ""

    def __enter__(self) -> View:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.live:
            self.live.stop()

    def say(self, message: str) -> None:
        """Print a line above the table."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def show(self, status: Status) -> None:
        """Show a newer status."""
        now = time.monotonic()
        if self._first is None or status.env_steps < self._first[1]:
            self._first = (now, status.env_steps)
        if status.env_steps != self._steps:
            self._moved, self._steps = now, status.env_steps
        seconds = self._moved - self._first[0]
        speed = (status.env_steps - self._first[1]) / seconds if seconds > 1 else 0.0
        if self.live:
            self.live.update(table(status, speed), refresh=True)
        elif now - self._printed > PLAIN_EVERY_S and (words := line(status, 0.0)) != self._said:
            self._printed, self._said = now, words
            self.say(line(status, speed))


def line(status: Status, speed: float) -> str:
    """One line for logs."""
    if status.is_clips:
        return of_budget(status)
    metrics = status.metrics
    parts = [
        of_total(status),
        f"{speed:,.0f} steps/s" if speed else "",
        of_budget(status) if status.budget else "",
        f"reward version {status.reward_version}" if status.budget else "",
        f"reward {status.of_reward}, frozen" if status.origin else "",
        *(f"{label} {metrics[name]:.4g}" for name, label in _METRICS if name in metrics),
        f"held out: {told}" if (told := window_words(metrics)) else "",
        EXPLOITED if metrics.get(ALARM) else "",
        *(r.state for r in status.roles if r.alive and r.state.startswith(_WAITS.get(r.role, "-"))),
    ]
    return " | ".join(p for p in parts if p)


def of_total(status: Status) -> str:
    """How many agent steps were made; the last rollout may end beyond the total."""
    if status.env_steps > status.total_steps:
        return f"{status.env_steps:,} steps (all {status.total_steps:,}, in whole rollouts)"
    return f"{status.env_steps:,} of {status.total_steps:,} steps"


def silence(status: Status, name: str) -> str:
    """What to type for a run whose processes are all dead (``name`` as typed), or an empty string."""
    if status.silent_ms is None:
        return ""
    return f"run {status.run}: no process has been alive for {duration(status.silent_ms)}; prefrl resume {name} goes on"


def of_budget(status: Status) -> str:
    """How much of the budget is used; imported comparisons may be more than all of it."""
    if status.comparisons > status.budget:
        return f"{status.comparisons} comparisons (budget {status.budget}, no more will be asked)"
    return f"{status.comparisons} of {status.budget} comparisons"


_WAITS = {"rollout": "paused", "reward": "waiting for the first"}  # what is worth a word, by role
_METRICS = (
    ("true_return", "true return"),
    ("learned_return", "learned return"),
    ("oob_accuracy", "out-of-bag accuracy"),
    ("oob_loss", "out-of-bag loss"),
    ("train_loss", "training loss"),
    ("l2", "L2 coefficient"),
)


def table(status: Status, speed: float) -> RenderableType:
    """The whole picture for a terminal."""
    if status.is_clips:
        return _clips(status)
    left = (status.total_steps - status.env_steps) / speed if speed > 0 else 0.0
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        "steps",
        of_total(status).removesuffix(" steps"),
        ProgressBar(status.total_steps, status.env_steps, width=24),
        f"{speed:,.0f} steps/s, {left / 60:.0f} min left" if speed else "",
    )
    if status.budget:
        behind = status.scheduled - status.comparisons
        grid.add_row(
            "comparisons",
            of_budget(status).removesuffix(" comparisons"),
            ProgressBar(status.budget, status.comparisons, width=24),
            f"{status.scheduled} by schedule, {behind} behind" if behind > 0 else f"{status.scheduled} by schedule",
        )
        if status.clips:
            undrawn, failed = status.clips["missing"] + status.clips["pending"], status.clips["failed"]
            more = f", {undrawn} to be drawn" + (f", {failed} cannot be drawn" if failed else "")
            grid.add_row("clips", f"{status.open_queries} queries wait", "", f"{status.clips['ready']} ready{more}")
        grid.add_row("reward", f"version {status.reward_version}")
    if status.origin:
        grid.add_row("reward", f"{status.of_reward}, frozen")
    for name, label in _METRICS:
        if name in status.metrics:
            grid.add_row(label, f"{status.metrics[name]:.4g}")
    if held_out := window_words(status.metrics):
        grid.add_row("held out", held_out)
    if status.metrics.get(ALARM):
        grid.add_row(Text("alarm", style="bold red"), Text(EXPLOITED, style="bold red"))
    for role in status.roles:
        grid.add_row(role.role, f"{role.sign}, {duration(role.age_ms)} ago", Text(role.state, overflow="ellipsis"))
    title = Text(f"{status.run}: {status.task}, {status.learner}, seed {status.seed} ({status.state})", style="bold")
    return Group(title, grid, *(Text(e) for e in status.events))


def _clips(status: Status) -> RenderableType:
    """A folder of videos, of which people compare pairs."""
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(max(1, status.budget), status.comparisons, width=24)
    grid.add_row("comparisons", of_budget(status).removesuffix(" comparisons"), bar)
    grid.add_row("pairs that wait", str(status.open_queries))
    return Group(Text(f"{status.run}: a folder of clips", style="bold"), grid)


def ranks(ranked: Sequence[Ranked]) -> RenderableType:
    """The clips from the best to the worst; names are the files', never markup."""
    grid = Table(box=None, padding=(0, 2), pad_edge=False)
    for title in ("", "clip", "beats an average clip (95 %)", "won", "tied", "lost"):
        grid.add_column(title, justify="left" if title == "clip" else "right", overflow="fold")
    for place, one in enumerate(ranked, start=1):
        grid.add_row(str(place), Text(one.name), one.words, str(one.won), str(one.tied), str(one.lost))
    return grid
