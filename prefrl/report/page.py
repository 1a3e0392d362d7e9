"""The page: HTML around the charts. Every word from the database passes through ``escape``."""

from __future__ import annotations

from prefrl import __version__
from prefrl.report.facts import Facts
from prefrl.report.markup import escape, moment, number
from prefrl.report.sections import (
    agreement,
    answering,
    calibrated,
    compared,
    exploited,
    fitting,
    frozen,
    machinery,
    overview,
    performance,
)
from prefrl.report.style import CSS
from prefrl.store.folder import folder_of


def render(facts: Facts) -> str:
    """The whole page."""
    status = facts.status
    if status.is_clips:
        return _page(facts, f"A folder of clips, {escape(folder_of(facts.run))}; nothing is trained.", compared(facts))
    parts = [overview(facts), performance(facts)]
    if facts.asks:
        parts += [exploited(facts), agreement(facts), calibrated(facts), answering(facts), fitting(facts)]
    elif facts.learned:
        parts += [frozen(facts), agreement(facts)]
    else:
        parts.append(
            "<section><h2>Comparisons and learned reward</h2><p class='missing'>There are none: this run learns from "
            "the environment's own reward (<code>reward.source</code> is <code>true</code>). It is the reference "
            "that runs on comparisons are measured against.</p></section>"
        )
    parts.append(machinery(facts))
    lead = (
        f"{escape(status.task)}, {escape(status.learner)}, seed {status.seed}; {escape(status.state)} after "
        f"{number(status.env_steps)} of {number(status.total_steps)} agent steps."
    )
    return _page(facts, lead, "\n".join(parts))


def _page(facts: Facts, lead: str, content: str) -> str:
    status = facts.status
    title = escape(f"{status.run}: {status.task}")
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta name='color-scheme' content='light dark'>\n"
        f"<title>{title}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(status.run)}</h1>\n"
        f"<p class='lead'>{lead}</p>\n"
        + content
        + f"\n<footer>prefrl {escape(__version__)}; run created {moment(facts.run.created_ms)}</footer>\n"
        "</main>\n</body>\n</html>\n"
    )
