"""The dashboard's numbers about annotators: what they answer, how fast, and how far they agree."""

from __future__ import annotations

import streamlit as st

from labeling_app.dashboard_facts import Facts, Person
from labeling_app.shown import NONE, Say, duration, percent, tiles
from prefrl.report.agreement import Kappa, Share, even


def answers(facts: Facts, say: Say) -> None:
    """Ties, can't-tells, side bias and time per answer."""
    st.header(say("dashboard.answers"))
    if not facts.standing:
        st.info(say("dashboard.no_answers"))
        return
    one = facts.people.everybody
    tiles(
        [
            (say("dashboard.ties"), percent(one.ties), say("dashboard.ties_means")),
            (say("dashboard.cant_tell"), percent(one.cant_tell), say("dashboard.cant_tell_means")),
            (say("dashboard.left_share"), percent(one.left), _bias(one.left, say)),
            (
                say("dashboard.median_time"),
                duration(one.times.median_ms if one.times else None, say),
                say("dashboard.median_time_means"),
            ),
            (
                say("dashboard.p90_time"),
                duration(one.times.p90_ms if one.times else None, say),
                say("dashboard.p90_time_means"),
            ),
        ],
        n_columns=3,
    )
    st.dataframe(_answers_table(facts.people.each, say), hide_index=True, width="stretch")
    st.caption(say("dashboard.people_means"))


def agreements(facts: Facts, say: Say) -> None:
    """Agreement with each other, with oneself, with known answers and with the model."""
    st.header(say("dashboard.agreement"))
    if not facts.standing:
        st.info(say("dashboard.no_answers"))
        return
    one = facts.people.everybody
    tiles(
        [
            (
                say("dashboard.fleiss"),
                _kappa(facts.people.fleiss),
                say("dashboard.fleiss_means", n=_n(facts.people.fleiss)),
            ),
            (say("dashboard.consistent"), percent(one.consistent), say("dashboard.consistent_means")),
            (say("dashboard.gold"), percent(one.gold), say("dashboard.gold_means")),
            *([] if facts.is_clips else [(say("dashboard.model"), percent(one.model), say("dashboard.model_means"))]),
        ],
        n_columns=4,
    )
    st.dataframe(_trust_table(facts, say), hide_index=True, width="stretch")
    if not facts.people.kappas:
        st.info(say("dashboard.no_overlap"))
        return
    names = ("first", "second", "kappa", "equal", "pairs")
    rows = [
        (one, two, _kappa(kappa), f"{100 * kappa.agreement:.0f} %", kappa.n)
        for (one, two), kappa in facts.people.kappas.items()
    ]
    columns = dict(zip((say(f"dashboard.{n}") for n in names), map(list, zip(*rows, strict=True)), strict=True))
    st.dataframe(columns, hide_index=True, width="stretch")
    st.caption(say("dashboard.cohen_means"))


def _answers_table(people: tuple[Person, ...], say: Say) -> dict[str, list[object]]:
    """One row for each annotator; a dataframe shows names as text, never as markup."""
    return {
        say("dashboard.annotator"): [p.annotator for p in people],
        say("dashboard.count"): [p.n for p in people],
        say("dashboard.left_share"): [_interval(p.left) for p in people],
        say("dashboard.side_bias"): [_bias_word(p.left, say) for p in people],
        say("dashboard.ties"): [percent(p.ties) for p in people],
        say("dashboard.cant_tell"): [percent(p.cant_tell) for p in people],
        say("dashboard.median_time"): [duration(p.times.median_ms if p.times else None, say) for p in people],
        say("dashboard.p90_time"): [duration(p.times.p90_ms if p.times else None, say) for p in people],
    }


def _trust_table(facts: Facts, say: Say) -> dict[str, list[object]]:
    """The same rows with what the tiles above say of everybody; all of both does not fit on one screen."""
    people = facts.people.each
    columns: dict[str, list[object]] = {
        say("dashboard.annotator"): [p.annotator for p in people],
        say("dashboard.consistent"): [percent(p.consistent) for p in people],
        say("dashboard.gold"): [percent(p.gold) for p in people],
    }
    if not facts.is_clips:
        columns[say("dashboard.model")] = [percent(p.model) for p in people]
    return columns


def _interval(share: Share | None) -> str:
    if share is None:
        return NONE
    low, high = share.interval
    return f"{100 * share.value:.0f} % ({100 * low:.0f} - {100 * high:.0f})"


def _bias_word(share: Share | None, say: Say) -> str:
    if share is None:
        return NONE
    return say("dashboard.unbiased" if even(share) else "dashboard.biased")


def _bias(share: Share | None, say: Say) -> str:
    if share is None:
        return say("dashboard.left_unknown")
    low, high = share.interval
    key = "dashboard.left_even" if even(share) else "dashboard.left_biased"
    return say(key, low=f"{100 * low:.0f}", high=f"{100 * high:.0f}")


def _kappa(kappa: Kappa | None) -> str:
    return NONE if kappa is None or kappa.value is None else f"{kappa.value:.2f}"


def _n(kappa: Kappa | None) -> str:
    return f"{kappa.n:,}" if kappa else "0"
