"""The sections of the page, from the facts to HTML."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from prefrl.report import charts
from prefrl.report.facts import (
    Answers,
    Facts,
    Series,
    answers,
    answers_by_annotator,
    counted,
    schedule,
    version_series,
)
from prefrl.report.markup import duration, escape, figure, missing, moment, number, percent, section, table, tiles
from prefrl.report.numbers import calibrate, wilson
from prefrl.report.quality import N_NEAREST
from prefrl.reward_model.held_out import WINDOW, looks
from prefrl.reward_model.schedule import n_held_out
from prefrl.settings import settings, to_dict
from prefrl.types import Preference

NO_VERSION = "There is no reward version yet: the first one is fitted when the initial comparisons have been answered."
NO_TRUTH = (
    "This task has no true reward: nobody has a formula for it, which is why people teach it. Look at what the policy "
    "does, and at how well the reward model predicts answers that it was not fitted to."
)
NO_HELD_OUT = (
    "No comparison is held out (label.held_out_share), so that nobody says whether what the policy does now is "
    "better than what it did untrained, as the reward says."
)
NOT_YET = "Nobody has answered a held-out comparison yet: they are asked while the policy learns."
SHOWN = (Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE)


def overview(facts: Facts) -> str:
    """Where the run stands, and all of its settings."""
    status = facts.status
    values = [("state", status.state), ("agent steps", f"{status.env_steps:,} of {status.total_steps:,}")]
    if facts.asks:
        values += [
            ("comparisons", f"{status.comparisons:,} of {status.budget:,}"),
            ("reward versions", f"{status.reward_version:,}"),
        ]
    for name, label in (("true_return", "true return"), ("oob_accuracy", "out-of-bag accuracy")):
        if name in status.metrics:
            values.append((label, number(status.metrics[name])))
    config = to_dict(facts.config)
    rows = []
    for setting in settings():
        part, _, key = setting.name.partition(".")
        rows.append((setting.name, json.dumps(config[part][key] if key else config[part]), setting.help))
    made_with = [(k, v if isinstance(v, str) else json.dumps(v)) for k, v in facts.run.versions.items()]
    every = table(("setting", "value", "meaning"), rows)
    return (
        tiles(values)
        + f"<details class='settings'><summary>All settings</summary>{every}</details>"
        + f"<details><summary>Environment and versions</summary>{table(('what', 'value'), made_with)}</details>"
    )


def performance(facts: Facts) -> str:
    """True and learned return over the run."""
    end, versions = facts.end, np.array([v.env_steps for v in facts.versions if facts.asks], np.float64)
    ticks = " Each tick at the bottom is a new reward version." if len(versions) else ""
    readings = {
        "true_return": (
            "True return",
            charts.BLUE,
            "Mean return of the last episodes by the environment's own reward, "
            + (
                "which the learner never sees: if it rises, the comparisons teach the task."
                if facts.learned
                else "which is what the learner learns from."
            ),
        ),
        "learned_return": (
            "Learned return",
            charts.ORANGE,
            "Mean return of the last episodes by the learned reward"
            + (", whose scale moves with every version" if facts.asks else "")
            + (
                ": if it rises while the true return falls, the policy exploits the reward's mistakes."
                if facts.truthful
                else "."
            ),
        ),
    }
    parts = []
    for name, (title, colour, reading) in readings.items():
        if name == "learned_return" and not facts.learned:
            continue
        series = facts.metrics.get(name)
        if name == "true_return" and not facts.truthful:
            parts.append(missing(title, NO_TRUTH))
        elif series is None or not np.isfinite(series.values).any():
            parts.append(missing(title, "Nothing was measured yet: it starts with the first episodes that end."))
        else:
            svg = charts.returns(name.replace("_", "-"), series, end, versions, colour, "return of an episode")
            parts.append(figure(svg, title, reading + ticks))
    return section("What the policy achieves", *parts)


def exploited(facts: Facts) -> str:
    """Whether the policy seems to exploit the learned reward."""
    title, heading = "Is the reward being exploited?", "What the policy does now against what it did untrained"
    seen = looks(facts.versions)
    if not seen:
        return section(title, missing(heading, NOT_YET if n_held_out(facts.config.label) else NO_HELD_OUT))
    newest = seen[-1].window
    verdict = (
        "Perhaps it is"
        if seen[-1].alarm
        else "Too early to tell"
        if not newest.told
        else "Keep an eye on it"
        if newest.falls_short
        else "No sign of it"
    )
    n_alarms = sum(look.alarm for look in seen)
    ever = f" There was cause for alarm at {n_alarms} of {len(seen)} looks." if n_alarms else ""
    chart = figure(
        charts.held_out(seen, facts.end),
        heading,
        f"Share of the last {WINDOW} held-out comparisons, never trained on, in which the newer clip was preferred, "
        f"and the share that the reward expected. Worry when the second stays above the first. {verdict}: "
        f"{newest.words}.{ever}",
    )
    return section(title, chart)


def agreement(facts: Facts) -> str:
    """Rank correlation of learned and true reward."""
    title = "Learned and true reward"
    if not facts.truthful:
        return section(title, missing("Rank correlation", NO_TRUTH))
    if facts.quality is None:
        return section(title, missing("Rank correlation", facts.quality_problem or NO_VERSION))
    agreements = facts.quality.agreements
    steps = np.array([a.env_steps for a in agreements], np.float64)
    values = np.array([a.correlation for a in agreements], np.float64)
    if np.isfinite(values).any():
        over_time = figure(
            charts.correlations(Series(steps, values), facts.end),
            "Rank correlation over the run",
            "Spearman's correlation of learned and true return of segments: 1 means that the learned reward orders "
            f"them as the true one does, 0 that it tells nothing (each version on the {N_NEAREST} segments recorded "
            "nearest to it; compared segments are kept longest, so early points lean on those it was fitted to).",
        )
    else:
        over_time = missing(
            "Rank correlation over the run", "It is not defined: the segments' returns are unknown or all equal."
        )
    newest = agreements[-1]
    heading = f"Version {newest.version}, segment by segment"
    if not len(newest.true):
        return section(title, over_time, missing(heading, "No segment with a known true return is stored."))
    points = figure(
        charts.scatter(newest.learned, newest.true),
        heading,
        f"Each point is one of {len(newest.true)} segments, rank correlation {number(newest.correlation)}: a rising "
        "band is a good reward, and points far above it are behaviour that the learned reward overrates.",
    )
    return section(title, over_time, points)


def calibrated(facts: Facts) -> str:
    """Predicted probabilities against answers."""
    title, heading = "Can its predictions be trusted?", "Calibration on answers it was not fitted to"
    if facts.quality is None:
        return section(title, missing(heading, facts.quality_problem or NO_VERSION))
    held_out = facts.quality.held_out
    counts = answers("", list(facts.comparisons)).counts
    apart = (
        f"Apart from these: ties {counts[Preference.TIE]:,}, incomparable {counts[Preference.INCOMPARABLE]:,}, decided "
        f"but in every member's bag {held_out.n_in_every_bag:,}."
    )
    result = calibrate(held_out.predicted, held_out.first)
    if not result.n:
        return section(title, missing(heading, f"No decided comparison is left to test it on. {apart}"))
    chart = figure(
        charts.calibration(result),
        heading,
        "Points on the dashed line mean that pairs given a probability of 70 % are answered that way 7 times in 10; "
        "flatter than the line means too sure, steeper too timid (bars: 95 % intervals).",
    )
    rows = [
        (f"{b.place / 10:.1f} to {(b.place + 1) / 10:.1f}", f"{b.predicted:.3f}", f"{b.observed:.3f}", b.n)
        for b in result.bins
    ]
    numbers = (
        "<figure><h3>In numbers</h3>"
        + tiles([("expected calibration error", f"{result.error:.3f}"), ("comparisons", f"{result.n:,}")])
        + table(("probability", "predicted", "observed", "comparisons"), rows)
        + f"<figcaption>The error is the mean distance between predicted and observed, 0 at best. {apart} Version "
        f"{held_out.version} predicts, by the mean of the members for which the answer is out of the bag, with the "
        f"assumed noise of {number(facts.config.reward.noise)}.</figcaption></figure>"
    )
    return section(title, chart, numbers)


def answering(facts: Facts) -> str:
    """Comparisons against the schedule, and how they were answered."""
    status = facts.status
    chart = figure(
        charts.comparisons(
            counted(facts.comparisons), schedule(facts.config), status.env_steps, facts.end, status.budget
        ),
        "Comparisons against the schedule",
        "Answers that count for the budget, at the agent steps at which they were asked: under the dashed line the "
        "annotators are behind, and the policy learns from fewer comparisons than planned.",
    )
    return section("Comparisons", chart, answered(facts))


def answered(facts: Facts) -> str:
    """How each annotator answered."""
    if not facts.comparisons:
        return missing("Answers", "Nobody has answered a query yet.")
    total = answers("all", list(facts.comparisons))
    named = answers_by_annotator(facts.comparisons)
    rows = [_answer_row(a) for a in ([total, *named] if len(named) > 1 else named)]
    n_late = sum(c.late for c in facts.comparisons)
    used = "are used" if facts.status.is_clips else "train"
    bias = "No answer on this page was shown left and right, so that side bias cannot be measured."
    if total.on_left + total.on_right:
        low, high = wilson(total.on_left, total.on_left + total.on_right)
        even = "which includes 50 %: no sign of side bias" if low <= 0.5 <= high else "without 50 %: the side matters"
        bias = (
            f"Of the decided answers {percent(total.on_left / (total.on_left + total.on_right))} went to the left "
            f"side; the 95 % interval is {percent(low)} to {percent(high)}, {even}."
        )
    return (
        "<figure><h3>Answers</h3>"
        + table(("annotator", *(p.value for p in SHOWN), "left share (95 %)"), rows)
        + f"<figcaption>{bias} Replaced or taken back: {facts.n_replaced:,}. Late, which {used} but do not "
        f"count for the budget: {n_late:,}.</figcaption></figure>"
    )


def compared(facts: Facts) -> str:
    """Which clips of a folder are preferred."""
    status = facts.status
    values = tiles(
        [
            ("clips", f"{status.clips['ready']:,}"),
            ("comparisons", f"{status.comparisons:,} of {status.budget:,}"),
            ("pairs that wait", f"{status.open_queries:,}"),
        ]
    )
    head = ("rank", "clip", "beats an average clip (95 %)", "won", "tied", "lost")
    rows = [(i, one.name, one.words, one.won, one.tied, one.lost) for i, one in enumerate(facts.ranking, start=1)]
    reading = (
        "How likely a clip is to be preferred to an average one of these, by the model of Bradley and Terry; a tie is "
        "half a win for each. Clips whose intervals overlap widely cannot be told apart yet."
    )
    listed = _listing("Ranking", head, rows, reading, "Nobody has compared any yet.")
    return values + section("Which clips are preferred", listed) + section("Comparisons", answered(facts))


def _answer_row(one: Answers) -> tuple[object, ...]:
    n = one.on_left + one.on_right
    low, high = wilson(one.on_left, n)
    share = f"{percent(one.on_left / n)} ({100 * low:.1f} to {100 * high:.1f})" if n else "-"
    return (one.annotator, *(one.counts[p] for p in SHOWN), share)


def frozen(facts: Facts) -> str:
    """Where a reward that stays as it is comes from, and how it fitted."""
    known = facts.versions[-1].metrics if facts.versions else {}
    labels = {
        "n_comparisons": "comparisons",
        "oob_accuracy": "out-of-bag accuracy",
        "oob_loss": "out-of-bag loss",
        "train_loss": "training loss",
    }
    return section(
        "The reward",
        f"<p>The reward {escape(facts.status.of_reward)} (<code>reward.source</code> is <code>frozen</code>): this run "
        "asks for no comparisons, and its reward stays as it was fitted:</p>",
        tiles([(label, number(known.get(name, np.nan))) for name, label in labels.items()]),
    )


def fitting(facts: Facts) -> str:
    """Losses, their ratio, accuracy and L2 of each reward version."""
    title, end, reward = "How the reward model fits", facts.end, facts.config.reward
    if not facts.versions:
        return section(title, missing("Losses", NO_VERSION))
    train, oob, accuracy, l2 = (
        version_series(facts.versions, n) for n in ("train_loss", "oob_loss", "oob_accuracy", "l2")
    )
    ratio = Series(train.steps, oob.values / np.where(train.values > 0, train.values, np.nan))
    few = "Too few comparisons are out of a member's bag to measure it."
    band = f"{number(reward.l2_low)} to {number(reward.l2_high)}"
    parts = [
        figure(
            charts.losses(train, oob, end),
            "Loss",
            "Mean loss of a prediction, on the comparisons that members were fitted to and on those out of their bag; "
            "at the dashed line it is no better than a coin toss.",
        )
        if np.isfinite([train.values, oob.values]).any()
        else missing("Loss", few),
        figure(
            charts.ratio(ratio, reward.l2_low, reward.l2_high, end),
            "Out-of-bag loss over training loss",
            f"Above the band ({band}) the members learn by heart and L2 grows; below it L2 shrinks.",
        )
        if np.isfinite(ratio.values).any()
        else missing("Out-of-bag loss over training loss", few),
        figure(
            charts.accuracy(accuracy, end),
            "Out-of-bag accuracy",
            "Share of decided comparisons that members predict rightly without having been fitted to them; guessing "
            "gives the dashed line, and an annotator's own mistakes keep it below 1.",
        )
        if np.isfinite(accuracy.values).any()
        else missing("Out-of-bag accuracy", few),
    ]
    if np.nanmax(l2.values, initial=0.0) > 0:
        reading = "Strength of the L2 penalty, mean over members: it rises while they overfit (logarithmic axis)."
        parts.append(figure(charts.l2(l2, end), "L2 coefficient", reading))
    else:
        parts.append(missing("L2 coefficient", "L2 is turned off (reward.l2_initial is 0)."))
    return section(title, *parts)


def machinery(facts: Facts) -> str:
    """Processes, checkpoints and events."""
    roles = [(r.role, r.sign, f"{duration(r.age_ms)} ago", r.state, f"{r.host}, {r.pid}") for r in facts.status.roles]
    stored = [(c.id, f"{c.env_steps:,}", c.sha256[:12], moment(c.created_ms)) for c in reversed(facts.checkpoints)]
    n_restarts = sum(e.kind == "restart" for e in facts.events)
    happened = [(moment(e.at_ms), e.role, e.kind, e.message) for e in facts.events]
    return section(
        "Processes, checkpoints and events",
        _listing(
            "Roles",
            ("role", "process", "last heartbeat", "doing", "host, process id"),
            roles,
            "When this page was made; a role is alive if it gave a sign of life in the last 15 s.",
            "No process has worked on this run yet.",
        ),
        _listing(
            "Checkpoints",
            ("id", "agent steps", "sha256", "stored"),
            stored,
            "Stored policies, newest first; prefrl eval takes the id, and the hash proves which one a result is from.",
            "No policy is stored yet.",
        ),
        _listing(
            f"Events ({n_restarts} restart{'' if n_restarts == 1 else 's'})",
            ("time", "from", "kind", "what"),
            happened,
            "Newest first; after a restart a process goes on from what is in the database.",
            "Nothing out of the ordinary has happened.",
        ),
    )


def _listing(title: str, head: tuple[str, ...], rows: Sequence[Sequence[object]], reading: str, empty: str) -> str:
    inner = (
        f"{table(head, rows)}<figcaption>{escape(reading)}</figcaption>" if rows else f"<p class='missing'>{empty}</p>"
    )
    return f"<figure class='wide'><h3>{escape(title)}</h3>{inner}</figure>"
