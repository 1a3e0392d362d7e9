"""The dashboard of a folder of clips: how far people are, and which clips they prefer."""

from __future__ import annotations

import streamlit as st

from labeling_app.dashboard_facts import Facts
from labeling_app.shown import Say, duration, number, tiles


def progress(facts: Facts, say: Say) -> None:
    """Comparisons of those that are wanted."""
    st.info(say("dashboard.clips_run"))
    status, counts = facts.status, facts.counts
    tiles(
        [
            (
                say("dashboard.done"),
                f"{status.comparisons:,} / {status.budget:,}",
                say("dashboard.done_means", n=f"{facts.n_replaced:,}"),
            ),
            (
                say("dashboard.open"),
                f"{counts['proposed'] + counts['skipped']:,}",
                say("dashboard.open_pairs_means", n=f"{counts['skipped']:,}", leased=f"{counts['leased']:,}"),
            ),
            (say("dashboard.per_hour"), number(facts.per_hour), say("dashboard.per_hour_plain")),
            (say("dashboard.time_left"), duration(facts.time_left_ms, say), say("dashboard.time_left_means")),
        ],
        n_columns=4,
    )


def ranks(facts: Facts, say: Say) -> None:
    """The clips, the best first; a dataframe shows the names of files as text, never as markup."""
    st.header(say("dashboard.ranking"))
    if not facts.ranking:
        st.info(say("dashboard.no_answers"))
        return
    columns: dict[str, list[object]] = {
        say("dashboard.rank"): list(range(1, len(facts.ranking) + 1)),
        say("dashboard.clip"): [one.name for one in facts.ranking],
        say("dashboard.beats"): [one.words for one in facts.ranking],
        say("dashboard.won"): [one.won for one in facts.ranking],
        say("dashboard.ties"): [one.tied for one in facts.ranking],
        say("dashboard.lost"): [one.lost for one in facts.ranking],
    }
    st.dataframe(columns, hide_index=True, width="stretch")
    st.caption(say("dashboard.ranking_means"))
