"""Runs in every state for the tests of the pages, and a page inside AppTest."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from streamlit.testing.v1 import AppTest

from prefrl.config import EnvConfig, LabelConfig, PolicyConfig, RewardConfig, RunConfig
from prefrl.resolve import resolve
from prefrl.reward_model.calibration import agreed_to_metrics, calibrate, to_metrics
from prefrl.settings import to_dict
from prefrl.store.answers import answer
from prefrl.store.clips import claim_clips, fail_clip, store_clip
from prefrl.store.comparisons import supersede
from prefrl.store.engine import Database
from prefrl.store.metrics import add_metrics
from prefrl.store.queue import lease, propose
from prefrl.store.rewards import publish
from prefrl.store.runs import Run, create_run, get_run, set_run_state
from prefrl.store.schema import query
from prefrl.store.schema import run as run_table
from prefrl.store.segments import add_segments
from prefrl.store.workers import beat, claim
from prefrl.types import Answer, Preference, Segment

WORDS = Path(__file__).parents[3] / "labeling_app" / "words"
T = 5
NAME = "small <b>run</b> *x*"  # as a database may hold that is older than the rules for names
HOSTILE = "<img src=x onerror=alert(1)> **bob** $x^2$"
LEFT, RIGHT, TIE, NONE = Preference.LEFT, Preference.RIGHT, Preference.TIE, Preference.INCOMPARABLE


def catalogue(language: str = "en") -> dict[str, dict[str, str]]:
    return tomllib.loads((WORDS / f"dashboard.{language}.toml").read_text(encoding="utf-8"))


def say(key: str, /, **values: object) -> str:
    """As the app's catalogue: a missing word or place is an error."""
    table, _, name = key.partition(".")
    words = catalogue()[table][name]
    return words.format(**values) if values else words


def show(module: str, url: str, *, readonly: bool = False, language: str = "en", **more: object) -> AppTest:
    """Run a page of a database; an exception anywhere fails the test."""

    def script(module: str, url: str, readonly: bool, language: str, name: str, more: dict[str, object]) -> None:
        import importlib
        import tomllib
        from pathlib import Path

        import labeling_app
        from prefrl.store.engine import Database

        page = importlib.import_module(f"labeling_app.{module}")
        folder = Path(next(iter(labeling_app.__path__))) / "words"
        words = tomllib.loads((folder / f"dashboard.{language}.toml").read_text(encoding="utf-8"))

        def say(key: str, /, **values: object) -> str:
            table, _, word = key.partition(".")
            return words[table][word].format(**values) if values else words[table][word]

        with Database.open(url, readonly=readonly) as db:
            page.page(db, name, say, **more)

    kwargs = {"module": module, "url": url, "readonly": readonly, "language": language, "name": NAME, "more": more}
    return fine(AppTest.from_function(script, kwargs=kwargs, default_timeout=60).run())


def fine(at: AppTest) -> AppTest:
    assert not at.exception, [e.value for e in at.exception]
    return at


def texts(at: AppTest) -> str:
    """All words of a page, but those of tables."""
    kinds = (at.title, at.header, at.caption, at.markdown, at.text, at.info, at.warning, at.error, at.success)
    tiles = [f"{m.label}: {m.value}" for m in at.metric]
    return "\n".join([*(str(e.value) for kind in kinds for e in kind), *tiles])


def metric(at: AppTest, word: str) -> str:
    """The number under a label; there is exactly one."""
    (found,) = {m.value for m in at.metric if m.label == say(f"dashboard.{word}")}
    return str(found)


def make_run(db: Database, **reward: object) -> Run:
    config = RunConfig(
        env=EnvConfig(segment_steps=T),
        policy=PolicyConfig(steps=4000, n_steps=100, sync_every=200),
        reward=RewardConfig(**reward),  # type: ignore[arg-type]  # passed on
        label=LabelConfig(budget=40),
        seed=3,
    )
    spaces = {"obs_shape": [3], "act_shape": [1], "n_actions": None}
    made = create_run(db, "small", to_dict(resolve(config)), {"spaces": spaces})
    with db.write() as connection:
        connection.execute(sa.update(run_table).where(run_table.c.id == made.id).values(name=NAME))
    return get_run(db, NAME)


def fill(db: Database, run: Run, n: int = 30) -> list[int]:
    rng = np.random.default_rng(1)
    segments = [
        Segment(rng.normal(size=(T, 3)).astype("f4"), rng.normal(size=(T, 1)).astype("f4"), env_steps=100 * i)
        for i in range(n)
    ]
    return add_segments(db, run.id, segments, None)


def ask(
    db: Database,
    run: Run,
    pairs: Sequence[tuple[int, int]],
    said: Sequence[Preference],
    who: str = "ann",
    known: Sequence[float] = (),
) -> None:
    """Answers of one annotator, after 1 s, 2 s, …; each pair lies with segment 1 on the left. ``known``: gold."""
    asked = propose(db, run.id, pairs, env_steps=200)
    rng = np.random.default_rng(0)
    leases = lease(db, run.id, who, n=len(pairs), rng=rng)
    flip = {LEFT: RIGHT, RIGHT: LEFT}
    sent = []
    for number, (one, preference) in enumerate(zip(leases, said, strict=True), start=1):
        shown = preference if one.shown_left == 1 else flip.get(preference, preference)
        sent.append(Answer(one.query_id, one.token, shown, who, f"{one.token}-uuid", 1000 * number))
    answer(db, sent)
    with db.write() as connection:
        for id_, mu in zip(asked, known, strict=False):
            connection.execute(sa.update(query).where(query.c.id == id_).values(purpose="gold", score=mu))


def initial(db: Database) -> Run:
    """Only the initial comparisons have been answered; no reward yet."""
    run = make_run(db)
    set_run_state(db, run.id, "running")
    ids = fill(db, run)
    ask(db, run, [(ids[0], ids[1]), (ids[2], ids[3])], [LEFT, RIGHT])
    beat(db, claim(db, run.id, "rollout"), env_steps=100, state="waiting for answers")
    return run


def full(db: Database) -> Run:
    """Everything has happened: two annotators who overlap, gold and repeated pairs, versions, clips, an edit."""
    run = initial(db)
    ids = fill(db, run)
    pairs = [(ids[i], ids[i + 10]) for i in range(8)]
    ask(db, run, pairs, [LEFT] * 4 + [RIGHT] * 2 + [TIE, NONE])
    ask(db, run, pairs, [LEFT] * 3 + [RIGHT] * 3 + [TIE, TIE], HOSTILE)
    ask(db, run, pairs[:2], [LEFT, RIGHT])  # again: one of two the same
    ask(db, run, [(ids[20], ids[21]), (ids[22], ids[23])], [LEFT, LEFT], known=[1.0, 0.0])
    supersede(db, run.id, 1, Preference.WITHDRAWN, "ann", "undo")
    for version in range(1, 13):
        metrics = {"train_loss": 0.5, "oob_loss": 0.6, "oob_accuracy": 0.5 + version / 100, "l2": 1e-3}
        metrics |= to_metrics(calibrate(np.array([0.15, 0.15, 0.85, 0.85]), np.array([False, True, True, True])))
        metrics |= agreed_to_metrics({"ann": (3, 4), HOSTILE: (1, 2)})
        steps = 100 * version
        publish(db, run.id, b"weights", last_seq=10, env_steps=steps, metrics=metrics)
        rising = {"true_return": -float(version), "learned_return": float(version)}
        add_metrics(db, run.id, "rollout", steps, rising)
    beat(db, claim(db, run.id, "rollout"), env_steps=1200, state="<script>learning</script>")
    propose(db, run.id, [(ids[0], ids[29]), (ids[28], ids[27])], env_steps=1200)
    for id_ in claim_clips(db, run.id, 4):
        if id_ == ids[27]:
            fail_clip(db, id_, "*no* context")
        else:
            store_clip(db, id_, b"video %d" % id_, {})
    lease(db, run.id, "eve")
    return run
