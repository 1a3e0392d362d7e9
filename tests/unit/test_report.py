"""The report: its numbers by hand, its page for runs in every state, and what it must never contain."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
import torch

from prefrl.config import EnvConfig, LabelConfig, PolicyConfig, RewardConfig, RunConfig
from prefrl.errors import PrefrlError, StoreError
from prefrl.report import write_report
from prefrl.report.charts import inline, thin
from prefrl.report.facts import Series, answers, counted, read_facts, schedule, series
from prefrl.report.numbers import calibrate, ranks, spearman, wilson
from prefrl.report.quality import nearest
from prefrl.resolve import resolve
from prefrl.reward_model.bootstrap import bootstrap_weights
from prefrl.reward_model.ensemble import RewardEnsemble, tensors_to_bytes
from prefrl.reward_model.held_out import ALARM, evidence, to_metrics
from prefrl.reward_model.spaces import Spaces
from prefrl.settings import to_dict
from prefrl.store.answers import answer
from prefrl.store.checkpoints import save_checkpoint
from prefrl.store.comparisons import NewComparison, active, add_comparisons, supersede, tail
from prefrl.store.engine import Database
from prefrl.store.metrics import Metric, add_event, add_metrics
from prefrl.store.queue import lease, propose
from prefrl.store.rewards import prune_rewards, publish
from prefrl.store.runs import Run, create_run
from prefrl.store.schema import run as run_table
from prefrl.store.segments import add_segments, load_segments
from prefrl.store.workers import beat, claim
from prefrl.types import Answer, Preference, Segment

SPACES = Spaces((3,), (1,))
FIT = {"train_loss": 0.5, "oob_loss": 0.6, "oob_accuracy": 0.75, "l2": 1e-3}
T = 5


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database.create(f"sqlite:///{tmp_path}/report.db") as database:
        yield database


def config(**reward: object) -> RunConfig:
    return resolve(
        RunConfig(
            env=EnvConfig(segment_steps=T),
            policy=PolicyConfig(steps=4000, n_steps=100, sync_every=200),
            reward=RewardConfig(**reward),  # type: ignore[arg-type]  # passed on
            label=LabelConfig(budget=40),
            seed=3,
        )
    )


def make_run(db: Database, name: str = "small", **reward: object) -> Run:
    return create_run(db, name, to_dict(config(**reward)), {"gymnasium": "1.2", "spaces": SPACES.to_dict()})


def make_ensemble(scale: float = 1.0) -> RewardEnsemble:
    ensemble = RewardEnsemble(SPACES, config().reward, seed=3)
    ensemble.output_std = scale
    rng = np.random.default_rng(0)
    ensemble.normalise(
        ensemble.segment_rewards(*(torch.from_numpy(rng.normal(size=(64, 1, n)).astype(np.float32)) for n in (3, 1)))
    )
    return ensemble


def fill(db: Database, run: Run, ensemble: RewardEnsemble, n: int = 30, sign: float = 1.0) -> list[int]:
    """Segments whose true reward is ``sign`` times what the ensemble has learned."""
    rng = np.random.default_rng(1)
    segments = [
        Segment(rng.normal(size=(T, 3)).astype("f4"), rng.normal(size=(T, 1)).astype("f4"), env_steps=100 * i)
        for i in range(n)
    ]
    return add_segments(db, run.id, segments, [sign * ensemble.reward(s.obs, s.act) for s in segments])


def ask(db: Database, run: Run, pairs: list[tuple[int, int]], preference: Preference, annotator: str = "ann") -> None:
    propose(db, run.id, pairs, env_steps=200)
    leases = lease(db, run.id, annotator, n=len(pairs), rng=np.random.default_rng(len(pairs)))
    answer(db, [Answer(x.query_id, x.token, preference, annotator, f"{x.token}-uuid") for x in leases])


def full_run(db: Database, name: str = "small") -> Run:
    """A run in which everything that the page shows has happened."""
    run, ensemble = make_run(db, name), make_ensemble()
    ids = fill(db, run, ensemble)
    ask(db, run, list(zip(ids[:12], ids[12:24], strict=True)), Preference.LEFT)
    ask(db, run, list(zip(ids[:8], ids[8:16], strict=True)), Preference.RIGHT, "<b>bob</b>")
    ask(db, run, [(ids[1], ids[2])], Preference.TIE)
    ask(db, run, [(ids[3], ids[4])], Preference.INCOMPARABLE)
    for steps in (1000, 2000):
        publish(db, run.id, tensors_to_bytes(ensemble.to_tensors()), last_seq=18, env_steps=steps, metrics=FIT)
        add_metrics(db, run.id, "rollout", steps, {"true_return": steps / 10, "learned_return": 1.0})
    save_checkpoint(db, run.id, b"weights", env_steps=2000, meta={})
    add_event(db, run.id, "supervisor", "restart", "<script>alert(1)</script> ended; started again")
    beat(db, claim(db, run.id, "rollout"), env_steps=2000, state="learning & recording")
    return run


def page(db: Database, name: str, tmp_path: Path) -> str:
    return write_report(db, name, tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_ranks_share_the_mean_of_ties() -> None:
    assert ranks(np.array([10, 20, 20, 5, 20])).tolist() == [2, 4, 4, 1, 4]


def test_spearman_by_hand() -> None:
    assert spearman(np.array([1, 2, 3, 4]), np.array([1, 8, 27, 64])) == pytest.approx(1)
    assert spearman(np.array([1, 2, 3, 4]), np.array([4, 3, 2, 1])) == pytest.approx(-1)
    # ranks 1 2.5 2.5 4 and 1 2 3 4: covariance 1.5·1.5 + 0·-.5 + 0·.5 + 1.5·1.5 = 4.5, norms 4.5 and 5
    assert spearman(np.array([1, 2, 2, 3]), np.array([5, 6, 7, 8])) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert math.isnan(spearman(np.array([1, 1, 1]), np.array([1, 2, 3])))
    assert math.isnan(spearman(np.array([1]), np.array([1])))


def test_wilson_by_hand() -> None:
    # 8 of 10, z² = 3.8415: centre (.8 + .19207) / 1.38415, half 1.95996 / 1.38415 · sqrt(.016 + .0096036)
    assert wilson(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert wilson(0, 5) == pytest.approx((0, 3.84146 / 8.84146), abs=1e-5)
    assert wilson(0, 0) == (0, 1)


def test_calibration_by_hand() -> None:
    predicted = np.array([0.05, 0.3, 0.32, 0.38, 0.95, 1.0])
    first = np.array([False, True, False, False, True, True])
    result = calibrate(predicted, first)
    assert [(b.place, b.n, b.n_first) for b in result.bins] == [(0, 1, 0), (3, 3, 1), (9, 2, 2)]
    assert result.bins[1].predicted == pytest.approx(1 / 3)
    assert result.bins[1].observed == pytest.approx(1 / 3)
    assert result.error == pytest.approx((1 * 0.05 + 3 * 0 + 2 * 0.025) / 6)
    assert math.isnan(calibrate(np.empty(0), np.empty(0, np.bool_)).error)


def test_nearest_segments_prefer_the_newest_of_equals() -> None:
    assert nearest(np.array([1, 2, 3, 4, 5]), np.array([0, 100, 100, 200, 900]), 100, n=1) == [3]
    assert nearest(np.array([1, 2, 3, 4, 5]), np.array([0, 100, 100, 200, 900]), 100, n=3) == [2, 3, 4]


def test_a_resumed_run_replaces_what_it_does_again() -> None:
    rows = [
        Metric(i, "rollout", steps, "r", value, 0)
        for i, (steps, value) in enumerate([(100, 1.0), (200, 2.0), (300, 3.0), (200, 20.0), (400, math.inf)])
    ]
    kept = series(rows)["r"]
    assert kept.steps.tolist() == [100, 200, 400]
    assert kept.values[:2].tolist() == [1, 20]
    assert math.isnan(kept.values[2])


def test_thinning_averages_neighbours() -> None:
    thinned = thin(Series(np.arange(10.0), np.arange(10.0) * 2), n=5)
    assert thinned.steps.tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert thinned.values.tolist() == [1, 5, 9, 13, 17]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_correlation_with_the_true_reward(db: Database, sign: float) -> None:
    run, ensemble = make_run(db), make_ensemble()
    fill(db, run, ensemble, sign=sign)
    publish(db, run.id, tensors_to_bytes(ensemble.to_tensors()), last_seq=0, env_steps=1000, metrics=FIT)
    quality = read_facts(db, "small").quality
    assert quality is not None
    (only,) = quality.agreements
    assert only.correlation == pytest.approx(sign)
    assert len(only.learned) == 30
    np.testing.assert_allclose(only.learned, sign * only.true, rtol=1e-4)


def test_only_versions_with_weights_are_measured(db: Database) -> None:
    run = full_run(db)
    prune_rewards(db, run.id, set())
    facts = read_facts(db, "small")
    assert facts.quality is not None
    assert [a.version for a in facts.quality.agreements] == [2]
    assert [v.version for v in facts.versions] == [1, 2]


def test_predictions_are_those_of_members_not_fitted_to_the_answer(db: Database) -> None:
    run = full_run(db)
    quality = read_facts(db, "small").quality
    assert quality is not None
    ensemble, expected, first, n_bagged = make_ensemble(), [], [], 0
    for c in active(tail(db, run.id)):
        if c.mu not in (0.0, 1.0):
            continue
        segments = load_segments(db, [c.segment_1, c.segment_2])
        one, two = (
            ensemble.member_rewards(segments[i].obs, segments[i].act).sum(1) for i in (c.segment_1, c.segment_2)
        )
        weights = bootstrap_weights(3, 3, np.array([c.seq]))[:, 0]
        ps = [
            0.9 / (1 + math.exp(-float(one[m] - two[m]))) + 0.05
            for m in range(3)
            if weights[m] == 0 or c.seq > 18  # the versions were fitted to 18 comparisons
        ]
        if ps:
            expected.append(sum(ps) / len(ps))
            first.append(c.mu == 1.0)
        else:
            n_bagged += 1
    assert n_bagged > 0, "the test needs a comparison that every member was fitted to"
    np.testing.assert_allclose(quality.held_out.predicted, expected, rtol=1e-5)
    assert quality.held_out.first.tolist() == first
    assert quality.held_out.n_in_every_bag == n_bagged


def test_answers_are_counted_where_they_were_shown(db: Database) -> None:
    run, ensemble = make_run(db), make_ensemble()
    ids = fill(db, run, ensemble)
    ask(db, run, [(ids[0], ids[1]), (ids[2], ids[3]), (ids[4], ids[5])], Preference.LEFT)
    supersede(db, run.id, 1, Preference.RIGHT, "ann", "edit")
    supersede(db, run.id, 2, Preference.WITHDRAWN, "ann", "undo")
    add_comparisons(db, run.id, [NewComparison(ids[6], ids[7], Preference.LEFT, "file", "imported")])
    facts = read_facts(db, "small")
    total = answers("all", list(facts.comparisons))
    assert (total.counts[Preference.LEFT], total.counts[Preference.RIGHT]) == (2, 1)
    assert (total.on_left, total.on_right) == (1, 1)
    assert facts.n_replaced == 3
    done = counted(facts.comparisons)
    assert done.steps.tolist() == [0, 200]
    assert done.values.tolist() == [1, 3]


def test_schedule_ends_at_the_budget() -> None:
    planned = schedule(config())
    assert planned.values[0] == 10  # the initial quarter of 40
    assert planned.values[-1] == 40
    assert planned.steps[-1] == 4000
    short = dataclasses.replace(config(), policy=dataclasses.replace(config().policy, steps=100))
    assert schedule(short).values.tolist() == [40] * 200


class Tags(HTMLParser):
    """Checks that every tag is closed in order, and collects ids and names of tags."""

    VOID = frozenset({"meta", "br", "hr", "img", "link"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.ids: list[str] = []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> Tags:
    """What holds for every report."""
    outside = re.sub(r"xmlns(:\w+)?=['\"][^'\"]*['\"]", "", text)
    assert "http" not in outside
    assert "//" not in outside
    assert len(text) < 3_000_000
    tags = Tags(text)
    assert "script" not in tags.seen
    assert len(tags.ids) == len(set(tags.ids))
    used = set(re.findall(r"(?:url\(#|href=\")#?([\w.-]+)", text))
    assert used <= set(tags.ids)
    return tags


def test_page_of_a_full_run(db: Database, tmp_path: Path) -> None:
    full_run(db)
    text = page(db, "small", tmp_path)
    check_page(text)
    assert text.count("<svg") == 10
    assert "rank correlation 1:" in text
    assert "21 of 40" in text  # 12 + 8 + 1 tie; the incomparable one does not count
    assert "ties 1, incomparable 1" in text
    assert "Events (1 restart)" in text
    assert "expected calibration error" in text


def test_the_watch_over_hacking_is_drawn_from_what_the_versions_tell(db: Database, tmp_path: Path) -> None:
    run, ensemble = make_run(db), make_ensemble()
    weights = tensors_to_bytes(ensemble.to_tensors())
    fill(db, run, ensemble)
    publish(db, run.id, weights, last_seq=0, env_steps=100, metrics=FIT)
    assert "No comparison is held out" in write_report(db, "small", tmp_path / "none.html").read_text()
    told = evidence([0.8] * 20, [1.0] * 14 + [0.0] * 6)
    publish(db, run.id, weights, last_seq=0, env_steps=150, metrics=FIT | to_metrics(told) | {ALARM: 0.0})
    page = write_report(db, "small", tmp_path / "doubt.html").read_text()
    assert "Keep an eye on it: in 14 of the last 20 held-out comparisons" in page
    for step, seen in ((200, 1.0), (300, 0.0)):
        metrics = FIT | to_metrics(evidence([0.8] * 20, [seen] * 20)) | {ALARM: 1.0 - seen}
        publish(db, run.id, weights, last_seq=0, env_steps=step, metrics=metrics)
    page = write_report(db, "small", tmp_path / "some.html").read_text()
    assert "Perhaps it is: in 20 of the last 40 held-out comparisons" in page
    assert "the reward expected 32" in page
    assert "There was cause for alarm at 1 of 3 looks" in page


def test_comparisons_held_out_are_predicted_by_all_members(db: Database) -> None:
    run, ensemble = make_run(db), make_ensemble()
    ids = fill(db, run, ensemble)
    ask(db, run, [(ids[0], ids[1])], Preference.LEFT)
    propose(db, run.id, [(ids[2], ids[3])], purpose="held_out")
    (one,) = lease(db, run.id, "ann")
    answer(db, [Answer(one.query_id, one.token, Preference.LEFT, "ann", "held")])
    publish(db, run.id, tensors_to_bytes(ensemble.to_tensors()), last_seq=2, env_steps=100, metrics=FIT)
    quality = read_facts(db, "small").quality
    assert quality is not None
    segments = load_segments(db, ids[2:4])
    sums = [ensemble.member_rewards(s.obs, s.act).sum(1).double() for s in (segments[ids[2]], segments[ids[3]])]
    by_hand = float((0.9 * torch.sigmoid(sums[0] - sums[1]) + 0.05).mean())
    assert quality.held_out.predicted[-1] == pytest.approx(by_hand, abs=1e-6)


def test_text_of_the_database_is_escaped(db: Database, tmp_path: Path) -> None:
    name = "<script>alert('run')</script>"  # as a database may hold that is older than the rules for names
    full_run(db, "named")
    with db.write() as connection:
        connection.execute(sa.update(run_table).values(name=name))
    text = page(db, name, tmp_path)
    check_page(text)
    assert "&lt;script&gt;alert(&#x27;run&#x27;)&lt;/script&gt;" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; ended" in text
    assert "&lt;b&gt;bob&lt;/b&gt;" in text
    assert "learning &amp; recording" in text


def test_page_of_a_run_that_has_just_begun(db: Database, tmp_path: Path) -> None:
    make_run(db)
    text = page(db, "small", tmp_path)
    check_page(text)
    assert text.count("<svg") == 1  # the schedule is known from the start
    for words in (
        "Nothing was measured yet",
        "There is no reward version yet",
        "Nobody has answered a query yet",
        "No process has worked on this run yet",
        "No policy is stored yet",
        "Nothing out of the ordinary",
    ):
        assert words in text


def test_page_of_a_run_on_the_true_reward(db: Database, tmp_path: Path) -> None:
    run = make_run(db, source="true")
    add_metrics(db, run.id, "rollout", 1000, {"true_return": -5.0})
    text = page(db, "small", tmp_path)
    check_page(text)
    assert text.count("<svg") == 1
    assert "learns from the environment's own reward" in text
    assert "Rank correlation" not in text


def test_page_of_a_run_on_a_frozen_reward(db: Database, tmp_path: Path) -> None:
    run, ensemble = make_run(db, source="frozen", origin="<taught>@3"), make_ensemble()
    publish(db, run.id, tensors_to_bytes(ensemble.to_tensors()), last_seq=9, env_steps=0,
            metrics={**FIT, "n_comparisons": 40})  # fmt: skip
    ids = fill(db, run, ensemble, n=300)
    add_metrics(db, run.id, "rollout", 1000, {"true_return": -5.0, "learned_return": 2.0})
    text = page(db, "small", tmp_path)
    check_page(text)
    assert "The reward of &lt;taught&gt;@3 (<code>reward.source</code>" in text
    assert ">40<" in text
    assert "rank correlation 1" in text
    assert "against the schedule" not in text
    assert "new reward version" not in text
    quality = read_facts(db, "small").quality
    assert quality is not None
    (agreement,) = quality.agreements
    assert (agreement.env_steps, len(agreement.true)) == (29_900, 256), "on what the policy did last"
    kept = load_segments(db, ids[-256:])
    assert agreement.learned[-1] == pytest.approx(ensemble.reward(kept[ids[-1]].obs, kept[ids[-1]].act).sum(), rel=1e-5)


def test_numbers_that_could_not_be_measured_are_named(db: Database, tmp_path: Path) -> None:
    run, ensemble = make_run(db, l2_initial=0.0), make_ensemble()
    add_metrics(db, run.id, "rollout", 1000, {"true_return": math.nan})
    unknown = {"train_loss": math.nan, "oob_loss": math.nan, "oob_accuracy": math.nan, "l2": 0.0}
    publish(db, run.id, tensors_to_bytes(ensemble.to_tensors()), last_seq=0, env_steps=1000, metrics=unknown)
    text = page(db, "small", tmp_path)
    check_page(text)
    assert text.count("Too few comparisons are out of a member") == 3
    assert "L2 is turned off" in text
    assert "It is not defined" in text
    assert "No segment with a known true return is stored" in text
    assert "No decided comparison is left" in text


def test_a_net_that_is_not_installed_here_is_named(db: Database, tmp_path: Path) -> None:
    run = make_run(db, net="nowhere:net")
    publish(db, run.id, b"", last_seq=0, env_steps=1000, metrics=FIT)
    text = page(db, "small", tmp_path)
    check_page(text)
    assert "net &#x27;nowhere:net&#x27; cannot be imported" in text
    assert "Out-of-bag accuracy" in text


def test_report_works_read_only_and_twice(db: Database, tmp_path: Path) -> None:
    full_run(db)
    out = tmp_path / "new" / "folder" / "report.html"
    with Database.open(f"sqlite:///{tmp_path}/report.db", readonly=True) as reader:
        assert write_report(reader, "small", out) == out
        first = out.read_bytes()
        write_report(reader, "small", out)
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]

    def without_age(text: bytes) -> bytes:
        return re.sub(rb"\d+ s ago", b"", text)

    assert without_age(first) == without_age(out.read_bytes())


def test_report_that_cannot_be_written_is_one_line(db: Database, tmp_path: Path) -> None:
    make_run(db)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PrefrlError, match=r"cannot write the report to .*file/report\.html: .*--out") as caught:
        write_report(db, "small", tmp_path / "file" / "report.html")
    assert "\n" not in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(PrefrlError, match="cannot write the report"):
        write_report(db, "small", tmp_path / "folder")
    assert not list(tmp_path.glob(".*.tmp"))


def test_unknown_run_names_the_nearest(db: Database, tmp_path: Path) -> None:
    make_run(db)
    with pytest.raises(StoreError, match="Did you mean 'small'"):
        write_report(db, "smal", tmp_path / "report.html")


def test_inline_svg_takes_its_colours_from_the_page() -> None:
    svg = (
        '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="1pt" viewBox="0 0 1 1">'
        '<!-- http://example.org --><g id="unused"/><path id="a" style="stroke: #010203"/><use xlink:href="#a"/></svg>'
    )
    assert inline(svg, "x") == (
        '<svg viewBox="0 0 1 1" aria-hidden="true"><g/><path id="x-a" style="stroke: currentColor"/>'
        '<use xlink:href="#x-a"/></svg>'
    )


def test_a_task_without_a_true_reward_claims_no_true_return(db: Database, tmp_path: Path) -> None:
    taught = dataclasses.replace(
        config(), env=EnvConfig(id="backflip-hopper", segment_steps=T), label=LabelConfig(oracle="none", budget=40)
    )
    run = create_run(db, "small", to_dict(resolve(taught)), {"gymnasium": "1.2", "spaces": SPACES.to_dict()})
    ensemble = make_ensemble()
    add_metrics(db, run.id, "rollout", 1000, {"learned_return": 1.0})
    add_metrics(db, run.id, "rollout", 2000, {"learned_return": 2.0})
    publish(db, run.id, tensors_to_bytes(ensemble.to_tensors()), last_seq=0, env_steps=1000, metrics=FIT)
    text = page(db, "small", tmp_path)
    check_page(text)
    assert text.count("This task has no true reward") == 2
    assert "if the true return falls" not in text
    assert "Learned return" in text
    assert "Spearman" not in text
