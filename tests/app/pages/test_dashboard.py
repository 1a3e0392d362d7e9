"""The dashboard in every state of a run: its numbers by hand, no exception anywhere, and nothing written."""

from __future__ import annotations

import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.ipc
import pytest
import sqlalchemy as sa

from labeling_app.dashboard_facts import Known, read_dashboard
from labeling_app.shown import duration, number, plain
from prefrl.report.agreement import Share
from prefrl.reward_model.held_out import ALARM, evidence, to_metrics
from prefrl.store.comparisons import NewComparison, add_comparisons, supersede
from prefrl.store.engine import Database
from prefrl.store.metrics import add_metrics
from prefrl.store.rewards import publish
from prefrl.store.runs import Run, create_run
from prefrl.types import Preference
from tests.app.pages import made
from tests.app.pages.made import HOSTILE, NAME, fill, full, initial, make_run, metric, say, show, texts

ROOT = Path(__file__).parents[3]
STATES = {"nothing": make_run, "initial": initial, "full": full}


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("state", list(STATES))
def test_every_state_is_shown_and_nothing_is_written(
    db: Database, url: str, content: Callable[[], str], state: str, readonly: bool, language: str
) -> None:
    STATES[state](db)
    before = content()
    at = show("dashboard", url, readonly=readonly, language=language)
    assert at.title[0].value == made.catalogue(language)["dashboard"]["title"]
    assert content() == before


def test_a_run_without_data_says_what_is_missing(db: Database, url: str) -> None:
    make_run(db)
    words = texts(show("dashboard", url))
    for name in ("no_version", "no_answers", "no_process", "no_clips", "no_true_return", "no_learned_return"):
        assert say(f"dashboard.{name}") in words
    assert say("dashboard.hacking_unknown") in words
    assert "nan" not in words.lower()


def test_numbers_of_a_full_run_by_hand(db: Database, url: str) -> None:
    full(db)
    at = show("dashboard", url)
    # ann 2 + 8 + 2 + 2, bob 8, minus one undone and one can't-tell: 20 of 40 count
    assert metric(at, "done") == "20 / 40"
    assert metric(at, "ties") == "14 % (3/21)"
    assert metric(at, "cant_tell") == "5 % (1/21)"
    assert metric(at, "consistent") == "50 % (1/2)"
    assert metric(at, "gold") == "50 % (1/2)"
    assert metric(at, "model") == "67 % (4/6)"
    assert metric(at, "oob_accuracy") == "0.62"
    # bins .15: 1 of 2, .85: 2 of 2; error (.35 + .15) / 2
    assert metric(at, "ece") == "0.250"
    assert metric(at, "ece_n") == "4"
    assert metric(at, "leased") == "1"
    assert metric(at, "open") == "1"
    assert metric(at, "failed") == "1"
    assert metric(at, "versions") == "12"
    assert metric(at, "learned_return") == "12"
    assert [e.value for e in at.error] == [say("dashboard.hacking_hacking")]
    # 8 common pairs, 6 alike: lower 4+3, higher 2+3, tie 1+2, none 1+0; p_e = (12 + 6 + 2) / 64
    facts = read_dashboard(db, NAME)
    kappa = facts.people.kappas[(HOSTILE, "ann")]
    assert (kappa.n, kappa.agreement) == (8, 0.75)
    assert kappa.value == pytest.approx((0.75 - 20 / 64) / (1 - 20 / 64))
    assert facts.people.everybody.times is not None
    assert facts.people.each[0].annotator == "ann"
    assert facts.people.each[0].model == Share(3, 4)
    tables = [d.value.to_dict("list") for d in at.dataframe]
    answers, trust, kappas = tables
    assert answers[say("dashboard.annotator")] == trust[say("dashboard.annotator")] == ["ann", HOSTILE]
    assert trust[say("dashboard.model")][0] == "75 % (3/4)"
    assert kappas[say("dashboard.kappa")] == [f"{kappa.value:.2f}"]
    assert len(at.get("vega_lite_chart")) == 6


def test_charts_hold_the_numbers_and_no_colour_of_one_mode_only(db: Database, url: str) -> None:
    full(db)
    found = show("dashboard", url).get("vega_lite_chart")
    for one in found:
        spec = one.proto.spec.lower()
        assert "nan" not in spec
        assert not any(f'"{colour}"' in spec for colour in ("black", "white", "#000", "#000000", "#fff", "#ffffff"))
        assert one.proto.theme == "streamlit"  # which follows the mode of the page
    assert [row["value"] for row in _rows(found[0])] == [-float(v) for v in range(1, 13)]
    planned = [row for row in _rows(found[2]) if row["what"] == say("dashboard.answered")]
    assert [(row["steps"], row["value"]) for row in planned] == [(0, 0), (200, 20), (1200, 20)]
    bins = [(row["p"], row["y"], row["n"]) for row in _rows(found[5]) if row.get("n")]
    assert bins == [(0.15, 0.5, 2), (0.85, 1.0, 2)]


def _rows(chart: Any) -> list[dict[str, Any]]:
    """All rows that a chart was sent, as the browser gets them."""
    sent = [pyarrow.ipc.open_stream(one.data.data).read_all().to_pylist() for one in chart.proto.datasets]
    return [row for rows in sent for row in rows]


def test_what_people_say_of_held_out_comparisons_against_what_the_reward_expects(db: Database, url: str) -> None:
    run = make_run(db)
    metrics = {"train_loss": 0.5, "oob_loss": 0.6, "oob_accuracy": 0.7}
    for steps, seen in ((100, 1.0), (200, 0.0)):
        more = to_metrics(evidence([0.8] * 20, [seen] * 20)) | {ALARM: 1.0 - seen}
        publish(db, run.id, b"x", last_seq=0, env_steps=steps, metrics=metrics | more)
    at = show("dashboard", url)
    words = texts(at)
    assert say("dashboard.hacking_hacking") in words
    assert say("dashboard.held_out_means", n="40", seen="20", claimed="32") in words
    rows = _rows(at.get("vega_lite_chart")[0])
    shares = [(row["what"], row["steps"], round(row["value"], 3)) for row in rows if "steps" in row]
    expected, said = say("dashboard.held_out_claimed"), say("dashboard.held_out_seen")
    assert shares == [(said, 100, 1.0), (said, 200, 0.5), (expected, 100, 0.8), (expected, 200, 0.8)]


def test_text_of_the_database_is_never_markup(db: Database, url: str) -> None:
    full(db)
    at = show("dashboard", url)
    assert any("<script>learning</script>" in t.value for t in at.text)  # st.text shows it as it is
    for element in (*at.caption, *at.markdown, *at.info, *at.title, *at.header):
        assert "<script>" not in element.value
        assert "<b>" not in element.value
    assert at.caption[0].value == r"small \<b\>run\</b\> \*x\*"
    assert HOSTILE in at.dataframe[0].value[say("dashboard.annotator")].tolist()


def test_clips_early_and_now(db: Database, url: str) -> None:
    full(db)
    at = show("dashboard", url)
    assert len(at.get("video")) == 3  # of four, one failed
    assert say("dashboard.clip_at", steps="0") in texts(at)
    assert say("dashboard.clip_at", steps="2,900") in texts(at)


def test_what_is_known_already_gives_the_same_numbers(db: Database) -> None:
    run, known = initial(db), Known()
    read_dashboard(db, NAME, known)
    full_again(db, run)
    for name in ("people", "true", "learned", "n_replaced"):
        fresh, later = (getattr(read_dashboard(db, NAME, k), name) for k in (None, known))
        assert repr(fresh) == repr(later)
    first = known.people
    read_dashboard(db, NAME, known)
    assert known.people is first
    other = create_run(db, "other", run.config, run.versions)
    assert read_dashboard(db, other.name, known).people.standing == ()


def full_again(db: Database, run: Run) -> None:
    """An edit, new answers and new metrics."""
    ids = fill(db, run)
    supersede(db, run.id, 2, Preference.WITHDRAWN, "ann", "undo")
    made.ask(db, run, [(ids[0], ids[1])], [Preference.LEFT], "bob")
    add_metrics(db, run.id, "rollout", 300, {"true_return": 1.0, "learned_return": 2.0})


def test_a_run_on_the_true_reward_asks_nobody(db: Database, url: str) -> None:
    run = make_run(db, source="true")
    add_metrics(db, run.id, "rollout", 100, {"true_return": 5.0})
    at = show("dashboard", url)
    assert say("dashboard.true_reward_run") in texts(at)
    assert say("dashboard.comparisons") not in [s.value for s in at.header]
    assert metric(at, "true_return") == "5"


def test_a_run_on_a_frozen_reward_asks_nobody_and_is_watched(db: Database, url: str) -> None:
    run = make_run(db, source="frozen", origin="taught@3")
    for step in range(1, 17):
        rising = {"true_return": -float(step), "learned_return": float(step)}
        add_metrics(db, run.id, "rollout", 100 * step, rising)
    at = show("dashboard", url)
    assert say("dashboard.frozen_reward_run", origin="taught@3") in texts(at)
    assert say("dashboard.true_reward_run") not in texts(at)
    assert say("dashboard.hacking_hacking") in texts(at)
    headers = [s.value for s in at.header]
    assert say("dashboard.comparisons") not in headers
    assert say("dashboard.fitting") not in headers
    assert metric(at, "learned_return") == "16"


def test_versions_of_an_older_release_and_numbers_that_are_missing(db: Database, url: str) -> None:
    run = make_run(db)
    ids = fill(db, run)
    add_comparisons(db, run.id, [NewComparison(ids[0], ids[1], Preference.INCOMPARABLE, "file", "u")])
    unknown = {"train_loss": float("nan"), "oob_loss": float("nan"), "oob_accuracy": float("nan")}
    publish(db, run.id, b"x", last_seq=1, env_steps=100, metrics=unknown)
    add_metrics(db, run.id, "rollout", 100, {"true_return": float("nan"), "learned_return": float("inf")})
    words = texts(show("dashboard", url))
    assert say("dashboard.no_calibration") in words
    assert say("dashboard.nothing_held_out") in words
    assert say("dashboard.left_unknown") in words
    assert "nan" not in words.lower()
    assert "inf" not in words.lower().replace("information", "")


def test_a_database_that_is_gone_is_said_in_words(db: Database, url: str, tmp_path: Path) -> None:
    with db.write() as connection:
        connection.execute(sa.text("DELETE FROM run"))
    words = texts(show("dashboard", url))
    assert say("dashboard.unreachable") in words
    assert "no run named" in words


def test_numbers_in_words() -> None:
    assert [duration(ms, say) for ms in (None, 0, 9_900, 65_000, 119_000, 120_000, 7_200_000, 200_000_000)] == [
        *("–", "0.0 s", "9.9 s", "65 s", "119 s", "2 min", "2 h", "2 days"),  # noqa: RUF001
    ]
    assert [number(v) for v in (None, float("nan"), 3.0, 0.12345, 12345.6)] == ["–", "–", "3", "0.123", "12,346"]  # noqa: RUF001
    assert plain("a_b\n[x](y)") == r"a\_b \[x\]\(y\)"


def test_languages_have_the_same_words_and_places() -> None:
    english, korean = (made.catalogue(language) for language in ("en", "ko"))
    assert {t: list(w) for t, w in english.items()} == {t: list(w) for t, w in korean.items()}
    for table, words in english.items():
        for name, text in words.items():
            places = [{p[1] for p in string.Formatter().parse(t) if p[1]} for t in (text, korean[table][name])]
            assert places[0] == places[1], (table, name)
            assert text.strip()
            assert korean[table][name].strip()


def test_the_app_loads_no_torch() -> None:
    code = (
        "import labeling_app.dashboard, labeling_app.comparisons, labeling_app.transfer, sys\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(run.stdout.split())
    assert {"streamlit", "altair", "sqlalchemy"} <= loaded
    assert not loaded & {"torch", "matplotlib", "mujoco", "safetensors", "stable_baselines3"}
