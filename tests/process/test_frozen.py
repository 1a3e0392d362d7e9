"""Runs on a reward that stays as it is: whole ones, stopped ones and killed ones, beside the run it came from."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing

import pytest
import torch

from prefrl.cli import main
from prefrl.run.create import check_resume, new_run, prepare
from prefrl.run.frozen import fit_run, prepare_frozen
from prefrl.run.lockstep import run_lockstep
from prefrl.run.status import read_status
from prefrl.run.supervisor import roles_of
from prefrl.settings import from_dict
from prefrl.store.checkpoints import list_checkpoints
from prefrl.store.engine import Database
from prefrl.store.metrics import read_metrics
from prefrl.store.queue import counts
from prefrl.store.rewards import load_reward, publish, reward_versions
from prefrl.store.runs import get_run, list_runs
from prefrl.store.segments import recent_segment_ids, true_returns
from prefrl.store.workers import workers

SMALL = {
    "policy": {
        "learner": "ppo",
        "steps": 768,
        "n_steps": 64,
        "sync_every": 128,
        "checkpoint_every": 256,
        "kwargs": {"batch_size": 64, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}},
    },
    "reward": {"pretrain_steps": 20, "fit_steps": 5, "batch_size": 16, "n_members": 2},
    "query": {"segments_per_rollout": 12, "pool": 24},
    "label": {"budget": 20},
}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """The file of a database in which the run ``taught`` is done."""
    threads, path = torch.get_num_threads(), tmp_path_factory.mktemp("taught") / "prefrl.db"
    with Database.create(f"sqlite:///{path}") as db:
        assert run_lockstep(db, new_run(db, "taught", *prepare(from_dict(SMALL))))
    torch.set_num_threads(threads)
    return path


def copy(path, to):
    to.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)


@pytest.fixture
def db(taught, tmp_path):
    copy(taught, tmp_path / "prefrl.db")
    threads = torch.get_num_threads()
    with Database.open(f"sqlite:///{tmp_path}/prefrl.db") as database:
        yield database
    torch.set_num_threads(threads)


def frozen(db, name, origin="taught", **changes):
    reward = {"source": "frozen", "origin": origin}
    config, versions, weights = prepare_frozen(db, from_dict({**SMALL, **changes, "reward": reward}))
    return new_run(db, name, config, versions, weights)


def left(db, run):
    """What a run leaves, but for times."""
    return (
        [(c.env_steps, c.sha256) for c in list_checkpoints(db, run.id)],
        [(m.env_steps, m.name, m.value) for m in read_metrics(db, run.id)],
    )


def test_a_run_on_a_frozen_reward_asks_nothing_and_fits_nothing(db):
    run = frozen(db, "frozen")
    assert roles_of(from_dict(run.config)) == ["rollout"]
    assert run_lockstep(db, run)
    status = read_status(db, "frozen")
    assert (status.state, status.env_steps) == ("done", 768)
    assert (status.budget, status.scheduled, status.comparisons, status.clips) == (0, 0, 0, {})
    assert (status.reward_version, status.origin) == (1, "taught@6")
    assert [w.role for w in workers(db, run.id)] == ["rollout"]
    assert set(counts(db, run.id).values()) == {0}
    metrics = read_metrics(db, run.id)
    used = [(m.env_steps, m.value) for m in metrics if m.name == "reward_version"]
    assert used == [(steps, 1.0) for steps in range(128, 769, 128)], "from the first rollout on"
    assert load_reward(db, run.id)[1] == load_reward(db, get_run(db, "taught").id)[1]
    assert true_returns(db, recent_segment_ids(db, run.id, 100)), "what the report compares the reward with"


def test_one_seed_is_one_run_to_the_bit_and_versions_teach_otherwise(db):
    runs = [frozen(db, "one"), frozen(db, "two"), frozen(db, "old", "taught@1"), frozen(db, "seed", seed=1)]
    for run in runs:
        assert run_lockstep(db, run)
    one, two, old, seed = (left(db, run) for run in runs)
    assert one == two
    assert one[0][-1] not in (old[0][-1], seed[0][-1])


def test_a_stopped_run_goes_on_with_its_reward_whatever_has_become_of_the_other(db):
    run, origin = frozen(db, "frozen"), get_run(db, "taught")
    before = load_reward(db, run.id)
    assert not run_lockstep(db, run, iter([False] * 300 + [True] * 10**6).__next__)
    assert 0 < read_status(db, "frozen").env_steps < 768
    publish(db, origin.id, b"of no use", last_seq=20, env_steps=800, metrics={})
    check_resume(db, get_run(db, "frozen"), "lockstep")
    assert run_lockstep(db, run)
    assert 768 <= read_status(db, "frozen").env_steps < 768 + 128
    assert load_reward(db, run.id) == before
    assert len(reward_versions(db, run.id)) == 1


def test_a_policy_on_what_people_taught_waits_for_nobody(db):
    """With people as annotators a run would pause for their answers, and for newer rewards."""
    run = frozen(db, "frozen", label={"oracle": "none", "budget": 400})
    assert from_dict(run.config).label.max_lag > 0
    check_resume(db, run, "lockstep")
    assert run_lockstep(db, run)


def test_a_fit_is_a_run_that_can_be_started_and_taken_from(db):
    fitted, _ = fit_run(db, "taught", None)
    assert (read_status(db, "taught-fit").state, read_status(db, "taught-fit").origin) == ("created", "taught")
    assert run_lockstep(db, fitted)
    again = frozen(db, "again", "taught-fit")
    assert read_status(db, "again").origin == "taught-fit@1"
    assert load_reward(db, again.id)[1] == load_reward(db, fitted.id)[1]


def test_commands_from_the_fit_to_the_end_through_kill_9(cli, taught):
    """The rollout is killed, and then the supervisor with it; the reward stays what it was."""
    copy(taught, cli.folder / "runs" / "prefrl.db")
    fitted = cli("fit", "taught", "--steps", 30, "--seed", 4, "--reward.n_members", 3, "--json")
    assert fitted.code == 0, fitted.err
    assert fitted.json["n_comparisons"] == 20
    assert (fitted.json["steps"], fitted.json["seed"], fitted.json["n_members"]) == (30, 4, 3)
    assert fitted.err.splitlines() == ["prefrl: fitting 3 networks to 20 comparisons of run taught, 30 minibatches"]
    flags = ["--learner", "ppo", "--policy.n_steps", 64, "--policy.sync_every", 128, "--policy.checkpoint_every", 128]
    flags += ["--policy.kwargs", "{batch_size = 64, n_epochs = 1, policy_kwargs = {net_arch = [8]}}"]
    flags += ["--name", "r", "--create-only"]
    assert cli("run", "pendulum", "--reward", "taught-fit", "--steps", 10_000, *flags).code == 0
    process = cli.start("resume", "r")
    begun = cli.until(lambda facts: facts.pids.get("rollout") and facts.status.env_steps > 256)
    assert list(begun.pids) == ["rollout"]
    os.kill(begun.pids["rollout"], signal.SIGKILL)
    cli.until(lambda facts: facts.pids.get("rollout") not in (None, begun.pids["rollout"]))
    reached = cli.until(lambda facts: facts.status.env_steps > begun.status.env_steps)
    process.kill()
    cli.end(process)
    assert cli.gone(), "the role ends with its supervisor"
    assert reached.status.state == "running"
    with cli.db() as db:
        run = get_run(db, "r")
        before = load_reward(db, run.id)
    ended = cli("resume", "r")
    assert ended.code == 0, ended.err
    facts = cli.facts()
    assert facts.status.state == "done"
    assert facts.versions == [1]
    assert not facts.comparisons
    with cli.db() as db:
        assert load_reward(db, run.id) == before
        assert before[1] == load_reward(db, get_run(db, "taught-fit").id)[1]
    assert "reward of taught-fit@1, frozen" in cli("status").out


REFUSED = {
    "a reward role": (["worker", "f", "--role", "reward"], "nothing is compared"),
    "an oracle": (["worker", "f", "--role", "oracle"], "nothing is compared"),
    "a page": (["label", "f"], "from taught@6): nothing is compared"),
    "comparisons": (["resume", "f", "--labels", "900"], "nothing is compared"),
    "a page with the run": (["resume", "f", "--human"], "nothing is compared"),
    "people": (["run", "pendulum", "--reward", "taught", "--human"], "--human and --reward.source frozen exclude"),
    "other spaces": (["run", "hopper", "--reward", "taught"], "but hopper has observations of shape (11,)"),
    "no such version": (["run", "pendulum", "--reward", "taught@9"], "versions 1 to 6, but no '9'"),
    "a version without its number": (["run", "pendulum", "--reward", "taught@"], "taught@ names no version: taught@2"),
    "two sources": (["run", "pendulum", "--reward", "taught", "--reward.source", "true"], "sets both"),
    "comparisons of a new run": (["run", "pendulum", "--reward", "taught", "--labels", "9"], "leave --labels out"),
    "an annotator": (["run", "pendulum", "--reward", "taught", "--oracle", "none"], "leave --oracle out"),
    "queries": (["run", "pendulum", "--reward.source", "true", "--query.pool", "9"], "leave --query.pool out"),
    "another fit": (["run", "pendulum", "--reward", "taught", "--reward.n_members", "3"], "was fitted with"),
    "a fit of nothing": (["fit", "f"], "those of its reward are in run 'taught'"),
    "a setting that no fit has": (["fit", "taught", "--learner", "ppo"], "unknown argument '--learner'"),
    "a fit that cannot be": (["fit", "taught", "--reward.n_members", "0"], "reward.n_members must be at least 1"),
    "a name that is taken": (["fit", "taught", "--name", "f"], "there is a run named 'f' already"),
}


@pytest.mark.parametrize(("words", "told"), REFUSED.values(), ids=REFUSED)
def test_refusals_are_one_line_and_make_no_run(db, monkeypatch, tmp_path, capsys, words, told):
    frozen(db, "f")
    monkeypatch.setenv("PREFRL_DB", db.url)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(words)
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert told in err
    assert len(err.splitlines()) == 1
    assert not out
    assert [run.name for run in list_runs(db)] == ["taught", "f"]
