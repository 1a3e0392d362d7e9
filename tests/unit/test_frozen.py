"""A reward fitted afresh to the comparisons of a run, and runs on a reward that stays as it is, before they start."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
import torch

from prefrl.config import EnvConfig, PolicyConfig, RewardConfig, RunConfig
from prefrl.errors import ConfigError, PrefrlError, RewardError, StoreError
from prefrl.resolve import resolve
from prefrl.reward_model import published
from prefrl.reward_model.spaces import Spaces
from prefrl.run.frozen import describe, facts, fit_run, prepare_frozen
from prefrl.settings import from_dict, to_dict
from prefrl.store.comparisons import NewComparison, add_comparisons, supersede, tail
from prefrl.store.engine import Database
from prefrl.store.folder import CLIPS
from prefrl.store.held_out import HELD_OUT
from prefrl.store.queue import propose
from prefrl.store.rewards import NewReward, load_reward, prune_rewards, publish, reward_versions
from prefrl.store.runs import Run, create_run, get_run, list_runs
from prefrl.store.schema import run as run_table
from prefrl.store.segments import add_segments
from prefrl.store.workers import claim
from prefrl.types import TOLD, Preference, Segment

SPACES, T = Spaces((4,), (1,)), 5  # as the pendulum has them
LEFT, RIGHT, TIE = Preference.LEFT, Preference.RIGHT, Preference.TIE


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with Database.create(f"sqlite:///{tmp_path}/frozen.db") as database:
        yield database


def make_run(db: Database, name: str = "taught", env: str = "pendulum", **reward: object) -> Run:
    settings = RunConfig(
        env=EnvConfig(id=env, segment_steps=T),
        policy=PolicyConfig(steps=4000, n_steps=100, sync_every=200),
        reward=RewardConfig(**{"pretrain_steps": 150, "batch_size": 32, **reward}),  # type: ignore[arg-type]
        seed=3,
    )
    return create_run(db, name, to_dict(resolve(settings)), {"spaces": SPACES.to_dict()})


def add_clips(db: Database, run: Run, n: int, source: str = "policy") -> tuple[list[int], list[float]]:
    """Segments, and what they are worth to an annotator who wants the first number of an observation to be large."""
    rng = np.random.default_rng(n)
    segments = [Segment(rng.normal(size=(T, 4)).astype("f4"), rng.normal(size=(T, 1)).astype("f4"), source=source)
                for _ in range(n)]  # fmt: skip
    return add_segments(db, run.id, segments, None), [float(s.obs[:, 0].sum()) for s in segments]


def compare(db: Database, run: Run, answers: list[tuple[int, int, Preference]], **detail: object) -> None:
    known = len(tail(db, run.id))
    rows = [
        NewComparison(a, b, said, "ann", f"{run.name}-{known + i}", detail=detail)
        for i, (a, b, said) in enumerate(answers)
    ]
    add_comparisons(db, run.id, rows)


def teach(db: Database, run: Run, n: int = 160, *, shuffled: bool = False) -> None:
    """Answers about random pairs; ``shuffled`` ones have nothing to do with the pairs."""
    ids, worth = add_clips(db, run, 80)
    rng = np.random.default_rng(0)
    pairs = [rng.choice(80, 2, replace=False) for _ in range(n)]
    said = [LEFT if worth[a] > worth[b] else RIGHT for a, b in pairs]
    if shuffled:
        rng.shuffle(said)
    compare(db, run, [(ids[a], ids[b], one) for (a, b), one in zip(pairs, said, strict=True)])


def test_held_out_answers_are_predicted_unless_they_are_shuffled(db: Database) -> None:
    for name, shuffled, low, high in (("taught", False, 0.85, 1.0), ("noise", True, 0.3, 0.7)):
        teach(db, make_run(db, name), shuffled=shuffled)
        run, reward = fit_run(db, name, None)
        told = facts(run, reward)
        assert low < told["oob_accuracy"] <= high
        assert (told["n_comparisons"], told["last_seq"], told["steps"]) == (160, 160, 150)
        assert (told["run"], told["origin"]) == (f"{name}-fit", name)


def test_a_fit_is_a_run_of_its_own_with_its_own_settings_and_the_other_is_as_it_was(db: Database) -> None:
    run = make_run(db)
    teach(db, run)
    publish(db, run.id, b"weights", last_seq=1, env_steps=9, metrics={})
    before = (get_run(db, "taught"), tail(db, run.id), reward_versions(db, run.id))
    lines: list[str] = []

    def change(config):
        return {**config, "seed": 8, "reward": {**config["reward"], "n_members": 5, "noise": 0.2}}

    new, reward = fit_run(db, "taught", "again", change, lines.append)
    assert (get_run(db, "taught"), tail(db, run.id), reward_versions(db, run.id)) == before
    (record,) = reward_versions(db, new.id)
    assert (record.version, record.env_steps, record.last_seq) == (1, 0, 160)
    assert record.metrics["oob_accuracy"] == reward.metrics["oob_accuracy"]
    config = from_dict(new.config)
    assert (config.reward.source, config.reward.origin, config.seed) == ("frozen", "taught", 8)
    assert config.policy == from_dict(run.config).policy
    version, ensemble = published.load_ensemble(db, new)
    assert (version, ensemble.n_members) == (1, 5)
    obs = np.random.default_rng(1).normal(size=(50, 4))
    scores = ensemble.reward(obs, np.zeros((50, 1)))
    assert np.corrcoef(scores, obs[:, 0])[0, 1] > 0.8, "it has learned what the annotator wants"
    assert lines == ["fitting 5 networks to 160 comparisons of run taught, 150 minibatches"]


def test_the_same_fit_twice_is_the_same_to_the_bit_and_another_seed_is_another(db: Database) -> None:
    teach(db, make_run(db), n=30)
    one, two = (fit_run(db, "taught", None) for _ in range(2))
    assert [run.name for run, _ in (one, two)] == ["taught-fit", "taught-fit-2"]
    assert one[1].weights == two[1].weights
    assert fit_run(db, "taught", None, lambda config: {**config, "seed": 4})[1].weights != one[1].weights


def test_answers_that_were_replaced_or_taken_back_are_left_out(db: Database) -> None:
    run = make_run(db)
    teach(db, run, n=40)
    for seq in (1, 2, 3):
        supersede(db, run.id, seq, Preference.WITHDRAWN, "ann", f"undo-{seq}")
    supersede(db, run.id, 4, TIE, "bob", "edit-4")
    told = facts(*fit_run(db, "taught", None))
    assert (told["n_comparisons"], told["n_decided"], told["n_ties"], told["last_seq"]) == (37, 36, 1, 44)


def test_what_a_person_was_asked_to_hold_the_reward_to_is_not_fitted(db: Database) -> None:
    run = make_run(db)
    teach(db, run, n=40)
    whole = fit_run(db, "taught", None)[1]
    ids, _ = add_clips(db, run, 2)
    propose(db, run.id, [(ids[1], ids[0])], purpose=HELD_OUT)
    compare(db, run, [(ids[0], ids[1], LEFT)])
    told = facts(*(again := fit_run(db, "taught", None)))
    assert (told["n_comparisons"], told["n_held_out"], told["last_seq"]) == (40, 1, 41)
    assert "fitted to 40 comparisons of taught (0 of them ties; 1 more held out)" in describe(*again)
    assert again[1].weights == whole.weights


def test_inputs_are_standardised_by_the_untrained_policy_or_else_by_what_was_compared(db: Database) -> None:
    run = make_run(db)
    teach(db, run, n=30)
    imported = published.load_ensemble(db, fit_run(db, "taught", None)[0])[1]
    wide = np.full((T, 4), 9.0, np.float32) + np.arange(T, dtype=np.float32)[:, None]
    add_segments(db, run.id, [Segment(wide, np.ones((T, 1), np.float32), source="initial")], None)
    own = published.load_ensemble(db, fit_run(db, "taught", None)[0])[1]
    assert own.obs_mean.tolist() == [11.0] * 4  # of 9, 10, 11, 12, 13
    assert own.obs_std.tolist() == pytest.approx([2**0.5] * 4)
    assert abs(imported.obs_mean).max() < 0.5


def test_true_returns_are_fitted_where_they_were_told_and_never_else(db: Database) -> None:
    def target(config):
        return {**config, "reward": {**config["reward"], "objective": "target"}}

    told, untold = make_run(db), make_run(db, "untold")
    ids, worth = add_clips(db, told, 60)
    for i in range(0, 60, 2):  # every answer a lie, so that only what was told can be learned from
        lie = RIGHT if worth[i] > worth[i + 1] else LEFT
        compare(db, told, [(ids[i], ids[i + 1], lie)], **{TOLD: [worth[i], worth[i + 1]]})
    scores = {}
    for name, change in (("by return", target), ("by answer", lambda config: config)):
        run, _ = fit_run(db, "taught", name, change)
        obs = np.random.default_rng(1).normal(size=(50, 4))
        scores[name] = np.corrcoef(published.load_ensemble(db, run)[1].reward(obs, np.zeros((50, 1))), obs[:, 0])[0, 1]
    assert scores["by return"] > 0.5
    assert scores["by answer"] < -0.5, "the answers alone, although true returns are there"
    teach(db, untold, n=10)
    with pytest.raises(RewardError, match="comparison 1 tells no true returns"):
        fit_run(db, "untold", None, target)


def _nothing(db: Database) -> str:
    make_run(db)
    return "run 'taught' has no comparisons that train, so there is nothing to fit: `prefrl import taught FILE`"


def _nothing_left(db: Database) -> str:
    run = make_run(db)
    ids, _ = add_clips(db, run, 2)
    compare(db, run, [(*ids, LEFT), (*ids, Preference.INCOMPARABLE)])
    supersede(db, run.id, 1, Preference.WITHDRAWN, "ann", "undo")
    return "run 'taught' has no comparisons that train"


def _ties(db: Database) -> str:
    run = make_run(db)
    ids, _ = add_clips(db, run, 3)
    compare(db, run, [(ids[0], ids[1], TIE), (ids[1], ids[2], TIE)])
    return "all 2 comparisons of run 'taught' that train are ties"


def _true(db: Database) -> str:
    make_run(db, source="true")
    return r"run 'taught' learns from the true reward \(reward.source true\): nothing is compared"


def _frozen(db: Database) -> str:
    make_run(db, source="frozen", origin="first@7")
    return "has no comparisons that train, so there is nothing to fit: those of its reward are in run 'first'"


def _folder(db: Database) -> str:
    create_run(db, "taught", {"env": {"id": CLIPS, "kwargs": {"folder": "/v"}}}, {})
    return "run 'taught' is a folder of clips"


def _alive(db: Database) -> str:
    run = make_run(db)
    teach(db, run, n=10)
    claim(db, run.id, "reward")
    return rf"run 'taught' is running: its reward \(process \d+ on {socket.gethostname()}\) gave a sign of life"


def _taken(db: Database) -> str:
    teach(db, make_run(db), n=10)
    make_run(db, "new")
    return "there is a run named 'new' already"


def _longer(db: Database) -> str:
    run = make_run(db)
    segments = [Segment(np.ones((n, 4), "f4"), np.ones((n, 1), "f4")) for n in (T, T + 1)]
    compare(db, run, [(*add_segments(db, run.id, segments, None), LEFT)])
    return "has 6 steps, but this run compares segments of 5"


@pytest.mark.parametrize(
    "make", [_nothing, _nothing_left, _ties, _true, _frozen, _folder, _alive, _taken, _longer], ids=lambda f: f.__name__
)
def test_what_cannot_be_fitted_is_told_in_one_line_and_makes_no_run(db: Database, make) -> None:
    match = make(db)
    names = [one.name for one in list_runs(db)]
    with pytest.raises(PrefrlError, match=match) as error:
        fit_run(db, "taught", "new")
    assert "\n" not in str(error.value)
    assert [one.name for one in list_runs(db)] == names


@pytest.fixture
def fitted(db: Database) -> Run:
    """A run with three versions, which say so in their weights."""
    run = make_run(db, n_members=2)
    for version in (1, 2, 3):
        metrics = {"l2": version, "held_out_n": 20.0, "hacking_alarm": 1.0}  # the last two tell of the run's own policy
        publish(db, run.id, f"version {version}".encode(), last_seq=version, env_steps=version, metrics=metrics)
    return run


def wanted(origin: str, env: str = "pendulum", **reward: object) -> RunConfig:
    policy = PolicyConfig(steps=1024, n_steps=128)
    return RunConfig(env=EnvConfig(id=env), policy=policy, reward=RewardConfig("frozen", origin, **reward), seed=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("origin", "version"), [("taught", 3), ("taught@2", 2), ("taught@1", 1)])
def test_a_reward_is_pinned_by_number_with_the_settings_it_was_fitted_with(
    db: Database, fitted: Run, origin: str, version: int
) -> None:
    config, versions, reward = prepare_frozen(db, wanted(origin, device="auto"))
    assert reward == NewReward(f"version {version}".encode(), version, {"l2": version})
    assert config.reward.origin == f"taught@{version}"
    assert (config.reward.n_members, config.reward.pretrain_steps) == (2, 150)
    assert (config.reward.source, config.reward.device) == ("frozen", "auto")
    assert (config.seed, config.policy.steps) == (5, 1024), "all else is the new run's own"
    assert Spaces.from_dict(versions["spaces"]) == SPACES


def test_people_need_not_be_able_to_see_what_nobody_compares(db: Database) -> None:
    """The default oracle compares true rewards, which this task lacks; on a frozen reward that is no matter."""
    spaces = Spaces((13,), (3,))
    run = create_run(db, "flips", to_dict(resolve(RunConfig())), {"spaces": spaces.to_dict()})
    publish(db, run.id, b"w", last_seq=1, env_steps=1, metrics={})
    config, _, _ = prepare_frozen(db, wanted("flips", "backflip-hopper"))
    assert config.reward.origin == "flips@1"


BAD = {
    "no such run": (wanted("tought"), "no run named 'tought'. Did you mean 'taught'"),
    "no such version": (wanted("taught@4", n_members=2), "run 'taught' has the reward versions 1 to 3, but no '4'"),
    "version zero": (wanted("taught@0"), "but no '0'"),
    "no number": (wanted("taught@new"), "but no 'new'"),
    "pruned": (wanted("taught@1"), "the weights of reward version 1 were pruned"),
    "other settings": (wanted("taught", n_members=7), "reward.n_members is 7, but the reward of run 'taught' was"),
    "asked for what is usual": (wanted("taught"), "reward.n_members is 3, but the reward of run 'taught' was"),
    "other spaces": (
        wanted("taught", "cheetah", n_members=2),
        "for observations of shape (4,) and actions of shape (1,), but cheetah has observations of shape (17,) and",
    ),
    "no version yet": (wanted("young"), "run 'young' has no reward version yet: `prefrl fit young`"),
    "the true reward": (wanted("true"), "run 'true' learns from the true reward"),
    "a folder": (wanted("videos"), "run 'videos' is a folder of clips"),
}


@pytest.mark.parametrize(("config", "told"), BAD.values(), ids=BAD)
def test_a_reward_that_cannot_be_used_is_told_in_one_line(
    db: Database, fitted: Run, config: RunConfig, told: str
) -> None:
    prune_rewards(db, fitted.id, {2})
    make_run(db, "young")
    make_run(db, "true", source="true")
    create_run(db, "videos", {"env": {"id": CLIPS, "kwargs": {"folder": "/v"}}}, {})
    with pytest.raises((ConfigError, StoreError)) as error:
        prepare_frozen(db, config, {"n_members"})
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("reward", [{"source": "frozen"}, {"origin": "taught"}, {"source": "true", "origin": "x"}])
def test_source_and_origin_need_each_other(reward: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="--reward RUN sets both"):
        from_dict({"reward": reward})


def test_what_happens_to_the_other_run_changes_nothing(db: Database, fitted: Run) -> None:
    config, versions, reward = prepare_frozen(db, wanted("taught"))
    new = create_run(db, "new", to_dict(config), versions, reward)
    publish(db, fitted.id, b"version 4", last_seq=4, env_steps=4, metrics={})
    prune_rewards(db, fitted.id, set())
    source = published.PublishedReward(db, new)
    assert (source.newest(), load_reward(db, new.id)[1]) == (1, b"version 3")
    with db.write() as connection:
        connection.execute(sa.delete(run_table).where(run_table.c.id == fitted.id))
    assert load_reward(db, new.id)[1] == b"version 3"
