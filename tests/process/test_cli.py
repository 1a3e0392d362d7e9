"""What the command line says: one clear line for what cannot work, before anything on disk is touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import torch

from prefrl.cli import main
from prefrl.run.create import new_run, prepare
from prefrl.run.lockstep import run_lockstep
from prefrl.settings import from_dict
from prefrl.store.engine import Database

SMALL = {
    "policy": {
        "learner": "ppo",
        "steps": 512,
        "n_steps": 64,
        "sync_every": 128,
        "checkpoint_every": 256,
        "kwargs": {"batch_size": 64, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}},
    },
    "reward": {"pretrain_steps": 10, "fit_steps": 2},
    "query": {"segments_per_rollout": 12},
    "label": {"budget": 12},
}

PLUGINS = """
import gymnasium as gym
import numpy as np

class Line(gym.Env):
    observation_space = gym.spaces.Box(-1e3, 1e3, (3,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def __init__(self, nan_at):
        self.nan_at = nan_at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.normal(size=3).astype(np.float32)
        return self.at, {}

    def step(self, action):
        Line.steps += 1
        self.at = self.at + 0.1 * np.float32(action[0])
        reward = -float(abs(self.at).sum())
        if Line.steps >= self.nan_at:
            self.at = np.full(3, np.nan, np.float32)
        return self.at, reward, False, False, {}

gym.register("Nan-v0", Line, max_episode_steps=40, kwargs={"nan_at": 7})
gym.register("NanLater-v0", Line, max_episode_steps=40, kwargs={"nan_at": 1111})

class Broken(gym.Env):
    def __init__(self):
        raise OSError("no such model")

class Spaceless(gym.Env):
    pass

gym.register("Broken-v0", Broken)
gym.register("Spaceless-v0", Spaceless)

def oracle(threshold=0.0):
    return None

def teacher(left, right, statistics, rng):
    return None

def mute():
    return teacher

def selector(ensemble, n):
    return []
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A database with a run that is done and one that has not begun."""
    threads, path = torch.get_num_threads(), tmp_path_factory.mktemp("finished") / "prefrl.db"
    with Database.create(f"sqlite:///{path}") as db:
        config, versions = prepare(from_dict(SMALL))
        assert run_lockstep(db, new_run(db, "old", config, versions))
        new_run(db, "young", config, versions)
    torch.set_num_threads(threads)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder, and plug-ins beside it."""
    plugins, work = tmp_path / "plugins", tmp_path / "work"
    plugins.mkdir()
    work.mkdir()
    (plugins / "test_cli_plugins.py").write_text(PLUGINS)
    (plugins / "syntax.py").write_text("x = (")
    monkeypatch.syspath_prepend(str(plugins))
    monkeypatch.chdir(work)
    monkeypatch.delenv("PREFRL_DB", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    yield work
    if module := sys.modules.pop("test_cli_plugins", None):
        import gymnasium as gym

        for name in ("Nan-v0", "NanLater-v0", "Broken-v0", "Spaceless-v0"):
            del gym.registry[name]
        assert module


@pytest.fixture
def say(capsys):
    """The command line in this process, with warnings as errors: its exit code and what it printed."""

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


def content(path):
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return [line for line in connection.iterdump() if "sqlite_sequence" not in line]


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


BAD_RUNS = {
    "unknown task": (["hoper"], ["unknown environment 'hoper'", "hopper"]),
    "unknown module": (["nosuchmodule:Thing-v0"], ["the module 'nosuchmodule' cannot be imported"]),
    "wrong URL scheme": (["pendulum", "--db", "mysql://me@host/x"], ["'mysql", "sqlite and postgresql"]),
    "two slashes": (["pendulum", "--db", "sqlite://foo.db"], ["two slashes", "write three, sqlite:///foo.db"]),
    "a setting without its section": (["--config", "../top.toml"], ["'steps'; did you mean policy.steps?"]),
    "no URL at all": (["pendulum", "--db", "runs.db"], ["'runs.db' is not a database URL", "sqlite:///"]),
    "no labels": (["pendulum", "--labels", "0"], ["label.budget must be at least 1, not 0"]),
    "no steps": (["pendulum", "--steps", "0"], ["policy.steps must be at least 1, not 0"]),
    "negative steps": (["pendulum", "--steps=-5"], ["policy.steps must be at least 1, not -5"]),
    "too few steps": (["pendulum", "--steps", "100"], ["policy.steps is 100", "at least --steps 2048"]),
    "steps in words": (["pendulum", "--steps", "many"], ["policy.steps must be int, not 'many'"]),
    "not a number": (["pendulum", "--reward.noise", "nan"], ["reward.noise must be at least 0", "nan"]),
    "too long a segment": (["pendulum", "--env.segment_steps", "5000"], ["env.segment_steps is 5000", "longer"]),
    "too long a segment for a Gymnasium id": (
        ["Pendulum-v1", "--env.segment_steps", "201"],
        ["env.segment_steps is 201", "Pendulum-v1 (200)"],
    ),
    "unknown learner": (["pendulum", "--learner", "pp0"], ["policy.learner is 'pp0'", "did you mean ppo?"]),
    "learner not importable": (["pendulum", "--learner", "nosuch:Class"], ["learner 'nosuch:Class' cannot be"]),
    "learner settings": (["pendulum", "--policy.kwargs", "{bogus=1}"], ["policy.kwargs do not fit", "bogus"]),
    "unknown oracle": (["pendulum", "--oracle", "true-retrun"], ["unknown oracle", "did you mean true-return?"]),
    "wrong parameter of the oracle": (
        ["pendulum", "--oracle", "mistake", "--label.oracle_kwargs", "{epsilom=0.1}"],
        ["label.oracle_kwargs do not fit the oracle 'mistake'", "epsilom"],
    ),
    "wrong parameter of an oracle plug-in": (
        ["pendulum", "--oracle", "test_cli_plugins:oracle", "--label.oracle_kwargs", "{x=1}"],
        ["label.oracle_kwargs do not fit the oracle 'test_cli_plugins:oracle'", "'x'"],
    ),
    "impossible parameter of the oracle": (
        ["pendulum", "--oracle", "mistake", "--label.oracle_kwargs", "{epsilon=2}"],
        ["epsilon must lie between 0 and 1, not 2"],
    ),
    "unknown selector": (["pendulum", "--selector", "entropy"], ["unknown selector 'entropy'"]),
    "unknown net": (["pendulum", "--reward.net", "mlpp"], ["unknown net 'mlpp'", "did you mean mlp?"]),
    "episodes that end early": (["CartPole-v1"], ["CartPole-v1", "the episode terminated at step", "--env.ends"]),
    "NaN": (["test_cli_plugins:Nan-v0"], ["Nan-v0", "the observation at step 7 is not finite"]),
    "unsuitable observations": (["FrozenLake-v1"], ["FrozenLake-v1", "the observation space must be a float Box"]),
    "an oracle that is None": (["pendulum", "--oracle", "test_cli_plugins:oracle"], ["it must return the oracle"]),
    "an oracle in place of its maker": (
        ["pendulum", "--oracle", "test_cli_plugins:teacher"],
        ["name a function that returns the oracle, not the oracle"],
    ),
    "an oracle that does not answer": (["pendulum", "--oracle", "test_cli_plugins:mute"], ["answered None, not LEFT"]),
    "a selector of another signature": (
        ["pendulum", "--selector", "test_cli_plugins:selector"],
        ["query.selector 'test_cli_plugins:selector' failed: TypeError"],
    ),
    "no such port": (["pendulum", "--human", "--port", "99999"], ["--port: must be a number from 1 to 65535"]),
    "a module that cannot be parsed": (["pendulum", "--oracle", "syntax:x"], ["SyntaxError", "syntax.py, line 1"]),
    "an environment that cannot be made": (
        ["test_cli_plugins:Broken-v0"],
        ["Broken-v0 cannot be made", "OSError: no such model", "test_cli_plugins.py:"],
    ),
    "an environment without spaces": (["test_cli_plugins:Spaceless-v0"], ["has no observation_space"]),
    "a setting that fails in the first update": (
        ["pendulum", "--policy.kwargs", "{target_kl='a'}"],
        ["the learner 'trpo' fails with these policy.kwargs"],
    ),
    "a name that is a path": (["pendulum", "--name", "../../evil"], ["'../../evil' cannot be the name of a run"]),
    "settings without braces": (["pendulum", "--policy.kwargs", "a=1"], ["write it as '{key = 1"]),
    "a learner in capitals": (["pendulum", "--learner", "PPO"], ["did you mean ppo?"]),
    "an unknown flag": (["pendulum", "--labls", "3"], ["unknown argument '--labls'", "did you mean --labels?"]),
    "an unknown mode": (["pendulum", "--mode", "lokstep"], ["--mode is 'lokstep'", "did you mean lockstep?"]),
    "lockstep with people": (["pendulum", "--mode", "lockstep", "--oracle", "none"], ["lockstep", "wait for people"]),
    "the task twice": (["pendulum", "--env.id", "hopper"], ["given twice: pendulum and --env.id hopper"]),
    "no such file": (["--config", "nothing.toml"], ["cannot read the configuration nothing.toml"]),
    "not TOML": (["--config", "../bad.toml"], ["../bad.toml is not valid TOML", "line 2"]),
    "unknown key in TOML": (["--config", "../key.toml"], ["unknown setting 'policy.stepps'", "policy.steps"]),
    "unknown section in TOML": (["--config", "../section.toml"], ["unknown section 'polcy'", "did you mean policy?"]),
    "a file where the logs shall be": (["pendulum", "--folder", "../bad.toml"], ["bad.toml is a file"]),
    "a file where the folder of the database shall be": (
        ["pendulum", "--db", "sqlite:///../bad.toml/x.db"],
        ["bad.toml"],
    ),
    "a file that is no database": (["pendulum", "--db", "sqlite:///../bad.toml"], ["not an SQLite database"]),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["async", "lockstep"])
def test_a_folder_that_cannot_be_made_leaves_no_run(folder, say, mode):
    (folder / "logs").mkdir()
    (folder / "logs" / "pendulum-0").write_text("in the way of the name that is chosen")
    made = ("--mode", mode, "--db", "sqlite:///x.db", "--folder")
    for where, words in (("logs", "logs/pendulum-0 cannot be made (File exists)"), ("/proc/logs", "cannot be made")):
        code, _, err = say("run", "pendulum", *made, where)
        assert code == 2
        assert words in err
        assert len(err.splitlines()) == 1, err
    assert json.loads(say("status", "--json", "--db", "sqlite:///x.db")[1]) == []


@pytest.mark.parametrize("words", BAD_RUNS.values(), ids=BAD_RUNS)
def test_a_run_that_cannot_work_is_refused_in_one_line(words, folder, say):
    argv, expected = words
    (folder.parent / "bad.toml").write_text("seed = 1\n[policy\nsteps = 5\n")
    (folder.parent / "key.toml").write_text("[policy]\nstepps = 5\n")
    (folder.parent / "top.toml").write_text("steps = 5\n")
    (folder.parent / "section.toml").write_text("[polcy]\n")
    before = tree(folder.parent)
    code, out, err = say("run", *argv)
    assert code == 2
    assert err.startswith("prefrl: ")
    assert len(err.splitlines()) == 1, err
    for part in expected:
        assert part in err
    assert not out
    found = [p for p in tree(folder.parent) if "__pycache__" not in p]
    assert found == before, "nothing is written"
    assert (folder.parent / "bad.toml").read_text() == "seed = 1\n[policy\nsteps = 5\n"


def test_plugins_are_found_in_the_current_folder(folder, say, monkeypatch):
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(folder))])
    (folder / "beside_me.py").write_text("def oracle():\n    return None\n")
    assert "it must return the oracle" in say("run", "pendulum", "--oracle", "beside_me:oracle")[2]


def test_comparisons_can_be_imported_before_a_run_is_started(folder, finished, say):
    shutil.copy(finished, folder / "x.db")
    url = ("--db", "sqlite:///x.db")
    assert say("export", "old", "all.jsonl", *url)[0] == 0
    code, out, _ = say("run", "pendulum", "--create-only", "--name", "a b", "--labels", "1e1", *url)
    assert code == 0
    assert "prefrl resume 'a b' --db sqlite:///x.db" in out
    code, out, _ = say("import", "a b", "all.jsonl", *url)
    assert "12 comparisons imported; run a b now has 12 comparisons (budget 10, no more will be asked)" in out
    assert "a b (created): 0 of 300,000 steps" in say("status", *url)[1]


OTHER_BAD = {
    "a name that exists": (["run", "pendulum", "--name", "old"], ["there is a run named 'old' already"]),
    "an unknown run": (["status", "odl"], ["no run named 'odl'", "Did you mean 'old'?"]),
    "resume of an unknown run": (["resume", "odl"], ["Did you mean 'old'?"]),
    "resume of a done run": (["resume", "old"], ["run 'old' is done with all its 512 steps; --steps"]),
    "resume of a done run to its old end": (["resume", "old", "--steps", "512"], ["'old' is done"]),
    "resume to less": (["resume", "old", "--steps", "100"], ["--steps 100 is less than", "512"]),
    "resume of nothing": (["resume", "young", "--steps", "0"], ["--steps 0 is less than", "512"]),
    "an unknown role": (["worker", "young", "--role", "judge"], ["unknown role 'judge'; known: rollout, reward"]),
    "a worker of an unknown run": (["worker", "odl", "--role", "reward"], ["Did you mean 'old'?"]),
    "no checkpoint": (["eval", "young"], ["run 'young' has no checkpoint yet"]),
    "an unknown checkpoint": (["eval", "old", "--checkpoint", "99"], ["no checkpoint 99", "prefrl eval RUN --list"]),
    "no episodes": (["eval", "old", "--episodes", "0"], ["--episodes must be at least 1, not 0"]),
    "a report of an unknown run": (["report", "odl"], ["Did you mean 'old'?"]),
}


@pytest.mark.parametrize("words", OTHER_BAD.values(), ids=OTHER_BAD)
def test_what_cannot_be_done_with_a_database_leaves_it_as_it_is(words, folder, finished, say):
    argv, expected = words
    shutil.copy(finished, folder / "x.db")
    files, before = tree(folder), content("x.db")
    code, out, err = say(*argv, "--db", "sqlite:///x.db")
    assert code == 2
    assert err.startswith("prefrl: ")
    assert len(err.splitlines()) == 1, err
    for part in expected:
        assert part in err
    assert not out
    assert content("x.db") == before
    assert [f for f in tree(folder) if not f.startswith("x.db-")] == files


@pytest.mark.parametrize("argv", [["run", "pendulum"], ["status"], ["eval", "old"], ["resume", "old"], ["db", "check"]])
def test_a_database_of_a_newer_prefrl_is_left_alone(argv, folder, finished, say):
    shutil.copy(finished, folder / "x.db")
    with closing(sqlite3.connect("x.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = content("x.db")
    code, _, err = say(*argv, "--db", "sqlite:///x.db")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "made by a newer prefrl (schema 9999" in err
    assert content("x.db") == before


def test_the_status_tells_a_run_that_has_ended_from_one_that_is_dead(folder, finished, say):
    shutil.copy(finished, folder / "x.db")
    url = ("--db", "sqlite:///x.db")
    for words in ((), ("old",)):
        out = say("status", *words, *url)[1]
        assert "512 of 512" in out
        assert "0 steps/s" not in out
        assert "alive" not in out
    assert "ended, " in out
    with closing(sqlite3.connect("x.db")) as connection, connection:
        connection.execute("UPDATE run SET state = 'running' WHERE name = 'old'")
        connection.execute("UPDATE worker SET env_steps = 640, heartbeat_ms = heartbeat_ms - 7200000")
    for words in ((), ("old",)):
        out = say("status", *words, *url)[1]
        assert "640 steps (all 512, in whole rollouts)" in " ".join(out.split())
        assert "run old: no process has been alive for 2 h; prefrl resume old --db sqlite:///x.db goes on" in out


def test_a_worker_started_by_hand_says_what_has_changed_and_that_a_run_is_done(folder, finished, say):
    shutil.copy(finished, folder / "x.db")
    with closing(sqlite3.connect("x.db")) as connection, connection:
        connection.execute("UPDATE run SET versions = json_set(versions, '$.gymnasium', '0.1') WHERE name = 'old'")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    code, _, err = say("worker", "old", "--role", "rollout", "--db", "sqlite:///x.db")
    for number, handler in before.items():
        signal.signal(number, handler)
    assert code == 0
    assert "run 'old' began with gymnasium 0.1 and goes on with " in err
    assert "run 'old' is done with all its 512 steps" in err


VERBS = ("status", "eval old", "report old", "resume old", "db check", "worker old --role reward")


@pytest.mark.parametrize("verb", VERBS)
def test_a_database_that_is_not_there_is_not_made(verb, folder, say):
    code, _, err = say(*verb.split(), "--db", "sqlite:///runs/none.db")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "there is no file " in err
    assert not tree(folder)


@pytest.mark.parametrize("words", ["run pendulum --label.bugdet 5", "eval x --episodes many", "trian", ""])
def test_words_that_argparse_does_not_know(words, folder, say):
    code, _, err = say(*words.split())
    assert code == 2
    assert (words.split()[-2:] or ["VERB"])[0] in err
    assert "Traceback" not in err
    assert not tree(folder)


def mount(*words):
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a file system of its own: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    point = tmp_path / "disk"
    point.mkdir()
    mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", point)
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def test_viewers_work_on_a_read_only_disk(disk, folder, finished, say):
    path = disk / "x.db"
    shutil.copy(finished, path)
    before = path.read_bytes()
    mount("-o", "remount,ro", disk)
    url = ("--db", f"sqlite:///{path}")

    code, out, _ = say("status", *url)
    assert code == 0
    assert out.splitlines()[0].startswith("old (done): 512 of 512 steps")
    assert out.splitlines()[1].startswith("young (created): 0 of 512 steps")
    code, out, _ = say("status", "--json", *url)
    assert [(s["run"], s["state"]) for s in json.loads(out)] == [("old", "done"), ("young", "created")]
    code, out, _ = say("status", "old", *url)
    assert code == 0
    assert "old: pendulum, ppo, seed 0 (done)" in out
    assert "12 of 12" in out
    code, out, _ = say("status", "old", "--json", *url)
    assert json.loads(out)["comparisons"] == 12
    code, out, _ = say("eval", "old", "--list", *url)
    assert code == 0
    assert "512 steps  sha256 " in out.splitlines()[-1]
    first = int(out.split()[0])
    code, out, _ = say("eval", "old", "--episodes", 1, "--checkpoint", first, *url)
    assert code == 0
    assert f"checkpoint {first} of run old: " in out
    code, out, _ = say("eval", "old", "--episodes", 2, "--json", *url)
    assert len(json.loads(out)["true_returns"]) == 2
    code, out, _ = say("report", "old", "--out", folder / "page.html", *url)
    assert code == 0
    assert "<html" in (folder / "page.html").read_text()
    code, out, _ = say("db", "check", *url)
    assert code == 0
    assert "up to date" in out
    assert path.read_bytes() == before
    assert tree(disk) == ["x.db"]

    for argv in (["resume", "young"], ["worker", "young", "--role", "reward"]):
        code, _, err = say(*argv, *url)
        assert code == 2
        assert "is not writable" in err
        assert len(err.splitlines()) == 1
    for argv in (["--db", f"sqlite:///{disk}/new.db"], ["--folder", disk]):
        code, _, err = say("run", "pendulum", *argv)
        assert code == 2
        assert "is not writable" in err
        assert len(err.splitlines()) == 1
    assert tree(folder) == ["page.html"]


def test_a_full_disk_stops_the_run_in_one_line_and_loses_nothing(disk, cli, whole):
    mount("-o", "remount,size=1m", disk)
    cli.url = cli.env["PREFRL_DB"] = f"sqlite:///{disk}/x.db"
    cli.create(policy__steps=2000, label__budget=20)
    ended = cli("resume", "r")
    assert ended.code == 2
    assert "the disk is full: free some space and start again" in ended.err
    assert "Traceback" not in ended.err + cli.logs()
    assert not cli.processes()
    mount("-o", "remount,size=64m", disk)
    before = cli.facts()
    assert before.status.state in ("failed", "running")
    resumed = cli("resume", "r")
    assert resumed.code == 0, resumed.err
    after = cli.facts()
    whole(after, steps=2000, budget=20)
    assert after.comparisons[: len(before.comparisons)] == before.comparisons


def test_nan_in_the_middle_of_a_run_fails_it_with_environment_and_step(cli):
    (cli.folder / "test_cli_plugins.py").write_text(PLUGINS)
    flags = ["--labels", 10, "--steps", 6000, "--policy.n_steps", 128, "--policy.sync_every", 256, "--learner", "ppo"]
    ended = cli("run", "test_cli_plugins:NanLater-v0", "--name", "r", *flags)
    assert ended.code == 2
    assert "prefrl: run 'r' stops: rollout: " in ended.err
    # the 1111th step of two environments: the 556th of the first, which began anew after the 128 untrained ones
    assert "test_cli_plugins:NanLater-v0: the observation at step 28 is not finite (entry 0 is nan)" in ended.err
    assert "Traceback" not in ended.err
    facts = cli.facts()
    assert facts.status.state == "failed"
    assert facts.status.env_steps > 0
    assert not cli.processes()


def test_help_costs_little(folder):
    for words in (["--help"], ["run", "--help"]):
        process = subprocess.Popen([sys.executable, "-m", "prefrl", *words], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process.stdout:
            assert b"prefrl" in process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        assert usage.ru_utime + usage.ru_stime < 0.5
