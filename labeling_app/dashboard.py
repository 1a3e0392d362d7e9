"""The dashboard: does the run learn what people want, and can the answers and the reward be trusted?

It only looks: every statement is a read, and a database that was opened read-only will do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import streamlit as st

from labeling_app import dashboard_charts as charts
from labeling_app import dashboard_folder as folder
from labeling_app import dashboard_people as people
from labeling_app.dashboard_facts import Facts, Known, read_dashboard
from labeling_app.shown import NONE, Say, duration, number, plain, tiles
from prefrl.envs.tasks import has_true_reward
from prefrl.errors import PrefrlError
from prefrl.report.facts import Series
from prefrl.report.watch import Verdict
from prefrl.reward_model.schedule import n_held_out
from prefrl.store.browse import clips_over_the_run, segment_steps
from prefrl.store.clips import load_clip
from prefrl.store.engine import Database
from prefrl.store.folder import is_clips
from prefrl.store.runs import get_run

EVERY_S = 5.0
ROLES = ("rollout", "reward", "oracle", "renderer")  # those that have a word of their own
N_CLIPS = 2  # at each end of the run
ALERTS: dict[Verdict, Callable[..., object]] = {
    Verdict.HACKING: st.error,
    Verdict.WATCH: st.warning,
    Verdict.FINE: st.success,
    Verdict.UNKNOWN: st.info,
}


def page(db: Database, run_name: str, say: Say) -> None:
    """Draw the page; its numbers refresh by themselves.

    Args:
        db: The database of the run; nothing is written. It must stay open: the numbers are read again by
            themselves after the script has ended.
        run_name: The run.
        say: Looks words up in the tables ``dashboard``.
    """
    st.title(say("dashboard.title"))
    st.caption(plain(run_name))
    live = st.toggle(say("dashboard.live", n=f"{EVERY_S:.0f}"), value=True, key="dashboard-live")

    @st.fragment(run_every=EVERY_S if live else None)
    def numbers() -> None:
        try:
            known = st.session_state.setdefault("dashboard-known", Known())
            facts = read_dashboard(db, run_name, known)
        except PrefrlError as error:
            st.warning(say("dashboard.unreachable"))
            st.text(str(error))
            return
        sections(facts, say)

    numbers()
    try:
        if is_clips(get_run(db, run_name)):
            return  # nothing in it learns, so that there is nothing early and late
        clips(db, run_name, say)  # apart from the numbers: a video that plays is not to start again
    except PrefrlError:
        st.caption(say("dashboard.clips_unreachable"))


def sections(facts: Facts, say: Say) -> None:
    """Everything that refreshes, from what matters most."""
    if facts.is_clips:
        folder.progress(facts, say)
        folder.ranks(facts, say)
        people.answers(facts, say)
        people.agreements(facts, say)
        return
    overview(facts, say)
    if facts.is_learned:
        hacking(facts, say)
    returns(facts, say)
    if facts.asks:
        progress(facts, say)
        fitting(facts, say)
        calibration(facts, say)
        people.answers(facts, say)
        people.agreements(facts, say)
        queue(facts, say)
    processes(facts, say)


def overview(facts: Facts, say: Say) -> None:
    """Where the run stands."""
    status = facts.status
    entries = [
        (say("dashboard.state"), say(f"dashboard.state_{status.state}"), say("dashboard.state_means")),
        (
            say("dashboard.steps"),
            f"{status.env_steps:,} / {status.total_steps:,}",
            say("dashboard.steps_means"),
        ),
    ]
    if facts.asks:
        entries.append(
            (say("dashboard.versions"), f"{status.reward_version:,}", say("dashboard.versions_means")),
        )
    elif facts.is_learned:
        kind = "frozen" if "@" in status.origin else "fitted"
        st.info(say(f"dashboard.{kind}_reward_run", origin=plain(status.origin)))
    else:
        st.info(say("dashboard.true_reward_run"))
    tiles(entries)


def hacking(facts: Facts, say: Say) -> None:
    """Whether the policy seems to exploit the reward's mistakes, in plain words."""
    st.header(say("dashboard.hacking"))
    found = facts.watch
    with st.container(key="dashboard-hacking"):
        ALERTS[found.verdict](say(f"dashboard.hacking_{found.verdict}"))
    if facts.held_out:
        words = {name: say(f"dashboard.held_out_{name}") for name in ("claimed", "seen", "share")}
        chart = charts.held_out(facts.held_out, {**words, "steps": say("dashboard.agent_steps")})
        st.altair_chart(chart, width="stretch")
        newest = facts.held_out[-1].window
        numbers = {"n": str(newest.n), "seen": f"{newest.seen:g}", "claimed": f"{newest.claimed:.0f}"}
        st.caption(say("dashboard.held_out_means", **numbers))
    elif facts.asks and n_held_out(facts.config.label) and facts.status.state != "done":
        st.info(say("dashboard.held_out_none"))
    trends = [("learned_return", found.learned), ("true_return", found.true), ("accuracy", found.accuracy)]
    words = {name: say(f"dashboard.trend_{trend}") for name, trend in trends}
    if not has_true_reward(facts.config.env.id):
        words["true_return"] = say("dashboard.trend_none")
    st.caption(say("dashboard.hacking_means", **words))


def returns(facts: Facts, say: Say) -> None:
    """True and learned return of the last episodes, apart: their scales differ."""
    st.header(say("dashboard.returns"))
    shown = [("true_return", facts.true)]
    if facts.is_learned:
        shown.append(("learned_return", facts.learned))
    # side by side where there is something to compare
    beside = all(np.isfinite(series.values).any() for _, series in shown)
    places = st.columns(len(shown)) if beside else [st.container() for _ in shown]
    for place, (name, series) in zip(places, shown, strict=True):
        with place:
            _return(name, series, facts.is_learned, say)


def _return(name: str, series: Series, is_learned: bool, say: Say) -> None:
    rows = charts.rows_of(series, say(f"dashboard.{name}"))
    st.metric(say(f"dashboard.{name}"), number(rows[-1]["value"]) if rows else NONE)
    if rows:
        st.altair_chart(charts.lines(rows, say("dashboard.agent_steps"), say("dashboard.return")), width="stretch")
    else:
        st.info(say(f"dashboard.no_{name}"))
    st.caption(say(f"dashboard.{name}_means" if is_learned else "dashboard.true_return_plain"))


def progress(facts: Facts, say: Say) -> None:
    """Comparisons against schedule and budget."""
    status = facts.status
    st.header(say("dashboard.comparisons"))
    behind = status.scheduled - status.comparisons
    left = facts.time_left_ms
    tiles(
        [
            (
                say("dashboard.done"),
                f"{status.comparisons:,} / {status.budget:,}",
                say("dashboard.done_means", n=f"{facts.n_replaced:,}"),
            ),
            (
                say("dashboard.behind"),
                f"{max(behind, 0):,}",
                say("dashboard.behind_means", n=f"{status.scheduled:,}"),
            ),
            (say("dashboard.per_hour"), number(facts.per_hour), say("dashboard.per_hour_means")),
            (say("dashboard.time_left"), duration(left, say), say("dashboard.time_left_means")),
        ],
        n_columns=4,
    )
    names = ("schedule", "answered", "agent_steps", "comparisons")
    words = {name: say(f"dashboard.{name}") for name in names} | {"steps": say("dashboard.agent_steps")}
    chart = charts.comparisons(facts.standing, facts.config, status.env_steps, words)
    st.altair_chart(chart, width="stretch")
    st.caption(say("dashboard.comparisons_means"))


def fitting(facts: Facts, say: Say) -> None:
    """Loss and accuracy of each reward version."""
    st.header(say("dashboard.fitting"))
    if not facts.versions:
        st.info(say("dashboard.no_version"))
        return
    newest = facts.versions[-1].metrics
    names = ("train_loss", "oob_loss", "oob_accuracy")
    tiles([(say(f"dashboard.{n}"), number(newest.get(n)), say(f"dashboard.{n}_means")) for n in names])
    words = {name: say(f"dashboard.{name}") for name in ("train", "held_out", "loss", "accuracy")}
    words["steps"] = say("dashboard.agent_steps")
    left, right = st.columns(2)
    for column, chart, name in (
        (left, charts.losses(facts.versions, words), "loss"),
        (right, charts.accuracy(facts.versions, words), "accuracy"),
    ):
        with column:
            if chart is None:
                st.info(say("dashboard.nothing_held_out"))
            else:
                st.altair_chart(chart, width="stretch")
            st.caption(say(f"dashboard.{name}_means"))


def calibration(facts: Facts, say: Say) -> None:
    """Whether pairs given 70 % are answered that way 7 times in 10."""
    st.header(say("dashboard.calibration"))
    if not facts.versions:
        st.info(say("dashboard.no_version"))
        return
    result = facts.calibration
    words = {name: say(f"dashboard.{name}") for name in ("predicted", "observed", "count")}
    chart = charts.calibration(result, words)
    if chart is None:
        st.info(say("dashboard.no_calibration"))
        return
    tiles(
        [
            (say("dashboard.ece"), f"{result.error:.3f}", say("dashboard.ece_means")),
            (say("dashboard.ece_n"), f"{result.n:,}", say("dashboard.ece_n_means")),
        ],
        n_columns=2,
    )
    st.altair_chart(chart, width="stretch")
    st.caption(say("dashboard.calibration_means"))


def queue(facts: Facts, say: Say) -> None:
    """Open, leased and failed work, and how old it is."""
    st.header(say("dashboard.queue"))
    counts, clips_, waiting = facts.counts, facts.clips, facts.waiting
    tiles(
        [
            (
                say("dashboard.open"),
                f"{counts['proposed'] + counts['skipped']:,}",
                say("dashboard.open_means", n=f"{counts['skipped']:,}"),
            ),
            (say("dashboard.leased"), f"{counts['leased']:,}", say("dashboard.leased_means")),
            (
                say("dashboard.age"),
                duration(waiting.oldest_ms if waiting else None, say),
                say("dashboard.age_means", median=duration(waiting.median_ms if waiting else None, say)),
            ),
            (
                say("dashboard.failed"),
                f"{clips_['failed']:,}",
                say("dashboard.failed_means", n=f"{clips_['missing'] + clips_['pending']:,}"),
            ),
        ],
        n_columns=4,
    )
    st.caption(say("dashboard.queue_means", answered=f"{counts['answered']:,}", expired=f"{counts['expired']:,}"))


def processes(facts: Facts, say: Say) -> None:
    """Heartbeats in words."""
    st.header(say("dashboard.processes"))
    if not facts.status.roles:
        st.info(say("dashboard.no_process"))
    for role in facts.status.roles:
        how = "alive" if role.alive else "silent"
        name = say(f"dashboard.role_{role.role}") if role.role in ROLES else role.role
        line = say(f"dashboard.process_{how}", role=name, age=duration(role.age_ms, say))
        st.text(f"{line} {role.state}".rstrip())  # text, not Markdown: the state is the database's
    st.caption(say("dashboard.processes_means"))


def clips(db: Database, run_name: str, say: Say) -> None:
    """What the agent did early in the run and what it does now, where clips were drawn and are still stored."""
    st.header(say("dashboard.clips"))
    early, late = clips_over_the_run(db, get_run(db, run_name).id, N_CLIPS)
    if not early:
        st.info(say("dashboard.no_clips"))
        return
    steps = segment_steps(db, [*early, *late])
    shown = [("early", id_) for id_ in early] + [("late", id_) for id_ in late]
    for column, (when, id_) in zip(st.columns(2 * N_CLIPS), shown, strict=False):
        video = load_clip(db, id_)
        with column:
            if video is not None:  # it may have been pruned a moment ago
                st.markdown(f"**{say(f'dashboard.clips_{when}')}**")
                st.video(video, loop=True, muted=True)
                st.caption(say("dashboard.clip_at", steps=f"{steps.get(id_, 0):,}"))
    st.caption(say("dashboard.clips_means"))
