"""Asynchronous runs: their end, their stop, going on, and roles that cannot work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prefrl.run.worker import FENCED
from prefrl.store.runs import get_run
from prefrl.store.workers import workers

FLAGS = (
    *("--steps", 3000, "--labels", 40, "--learner", "ppo", "--policy.n_steps", 128, "--policy.sync_every", 256),
    *("--policy.kwargs", "{batch_size=128, n_epochs=1, policy_kwargs={net_arch=[8]}}"),
    *("--reward.pretrain_steps", 50, "--reward.fit_steps", 5, "--query.segments_per_rollout", 24),
)
ENDLESS = {"policy__steps": 500_000, "label__budget": 400, "label__initial_fraction": 0.05}


def test_a_run_ends_with_its_steps_and_its_whole_budget(cli, whole):
    ended = cli("run", "pendulum", "--name", "r", *FLAGS, "--json", "--seed", 3)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    whole(facts)
    assert len(facts.comparisons) == 40
    assert ended.json["state"] == "done"
    assert ended.json == json.loads(cli("status", "r", "--json").out) | {"roles": ended.json["roles"]}
    assert "of 3,000 steps" in ended.err, "progress is shown, but not among the JSON"
    assert not cli.processes()
    assert [r.role for r in facts.status.roles] == ["oracle", "reward", "rollout"]
    assert [r.state for r in facts.status.roles] == ["done"] * 3
    assert facts.events == []

    again = cli("resume", "r")
    assert again.code == 2
    assert "run 'r' is done with all its 3000 steps; --steps" in again.err
    assert cli.facts().status.state == "done"

    more = cli("resume", "r", "--steps", 4000)
    assert more.code == 0, more.err
    assert "run r is done after 4," in more.out
    longer = cli.facts()
    whole(longer, steps=4000)
    assert longer.comparisons == facts.comparisons
    assert longer.versions[: len(facts.versions)] == facts.versions


def test_a_run_on_postgresql_is_the_same(cli_postgres, whole):
    cli = cli_postgres
    ended = cli("run", "pendulum", "--name", "r", *FLAGS)
    assert ended.code == 0, ended.err
    whole(cli.facts())
    assert not cli.processes()
    assert "secret" not in ended.out + ended.err + cli.logs(), "the password is in no output"
    assert "prefrl resume" not in ended.out, "it is done"
    assert "--db" not in ended.out, "PREFRL_DB says it already"


SLOW = """
import time
import torch
from prefrl.reward_model.nets import MLPEnsemble

class Slow(MLPEnsemble):
    def forward(self, obs, act):
        time.sleep(0.1 if torch.is_grad_enabled() else 0)
        return super().forward(obs, act)
"""


@contextlib.contextmanager
def away(cli, postgres):
    """The database accepts no connection and has cut those there were."""
    name = cli.url.rpartition("/")[2]
    postgres.sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false")
    postgres.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
    yield
    postgres.sql(f"ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true")


def test_a_database_that_goes_away_for_a_while_does_not_end_the_run(cli_postgres, postgres, whole):
    cli = cli_postgres
    cli.create(policy__steps=20_000)
    process = cli.start("resume", "r")
    cli.until(lambda f: f.status.env_steps > 1000 and len(f.versions) > 1)
    with away(cli, postgres):
        time.sleep(3)
        assert process.poll() is None, "it waits"
    ended = cli.end(process)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    whole(facts, steps=20_000)
    assert any("started again" in event for event in facts.events), "and says what happened"


def test_a_database_that_goes_away_while_the_run_ends_does_not_lose_the_last_comparisons(
    cli_postgres, postgres, monkeypatch
):
    cli = cli_postgres
    (cli.folder / "slow_at_the_end.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(cli.folder))
    slow = {"reward__net": "slow_at_the_end:Slow", "reward__pretrain_steps": 1, "reward__fit_steps": 30}
    cli.create(**slow, label__schedule="constant")
    process = cli.start("resume", "r")
    cli.until(lambda f: f.status.state == "done")
    with away(cli, postgres):
        time.sleep(4)  # long enough for the fit to end and find nobody to publish to
        assert process.poll() is None, "it waits"
    ended = cli.end(process)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    assert facts.status.comparisons == 40
    assert facts.status.open_queries == 0
    assert any("started again" in event for event in facts.events)


def test_an_interrupt_ends_the_processes_of_a_run_whose_database_is_gone(cli_postgres, postgres):
    cli = cli_postgres
    cli.create(**ENDLESS)
    process = cli.start("resume", "r")
    before = cli.until(lambda f: f.status.env_steps > 1000 and len(f.versions) > 1)
    with away(cli, postgres):
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        ended = cli.end(process, timeout=30)
        assert not cli.processes()
    assert ended.code == 2
    assert "Traceback" not in ended.err
    assert "not currently accepting connections" in ended.err.splitlines()[-1]
    process = cli.start("resume", "r")
    cli.until(lambda f: len(f.versions) > len(before.versions) + 3)
    process.send_signal(signal.SIGINT)
    assert cli.end(process).code == 130, "and it goes on from there"


def test_the_last_comparisons_are_answered_although_the_reward_is_still_being_fitted(cli, monkeypatch):
    (cli.folder / "slow.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(cli.folder))
    slow = {"net": "slow:Slow", "pretrain_steps": 1, "fit_steps": 30, "max_age": 3000}
    cli.create(label__schedule="constant", **{f"reward__{key}": value for key, value in slow.items()})
    process = cli.start("resume", "r")
    facts = cli.until(lambda f: f.status.state == "done")
    for role in ("reward", "oracle"):  # somebody ends them, politely: the last comparisons are not lost for that
        os.kill(facts.pids[role], signal.SIGTERM)
    ended = cli.end(process)
    assert ended.code == 0, ended.err
    facts = cli.facts()
    assert facts.status.comparisons == 40, "the oracle is still there when the last ones are asked"
    assert facts.status.open_queries == 0
    assert len(facts.versions) < 10, "the rollout has ended long before the reward role"


def test_an_interrupt_stops_cleanly_and_the_run_goes_on_from_there(cli):
    cli.create(**ENDLESS)
    process = cli.start("resume", "r")
    cli.until(lambda f: f.status.env_steps > 3000 and len(f.versions) > 2 and len(f.comparisons) > 20)

    refused = cli("resume", "r")
    assert refused.code == 2
    assert "run 'r' is running: its " in refused.err
    assert "process" in refused.err
    assert len(refused.err.splitlines()) == 1

    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    ended = cli.end(process)
    assert time.monotonic() - asked < 10
    assert ended.code == 130
    assert "prefrl resume r" in ended.out
    assert not ended.err
    assert not cli.processes()
    stopped = cli.facts()
    assert stopped.status.state == "stopped"
    assert not stopped.pids
    assert [r.state for r in stopped.status.roles] == ["stopped"] * 3
    listed = cli("eval", "r", "--list").out.splitlines()
    assert f"{stopped.status.env_steps:,} steps" in listed[-1], "a checkpoint at the very step that was reached"
    assert f"stopped after {stopped.status.env_steps:,} steps" in ended.out
    assert stopped.seqs == list(range(1, len(stopped.seqs) + 1))

    by_hand = cli("worker", "r", "--role", "reward")
    assert by_hand.code == 2
    assert "run 'r' is stopped; `prefrl resume r` starts it" in by_hand.err

    process = cli.start("resume", "r")
    steps = []

    def on(facts):
        steps.append(facts.status.env_steps)
        return facts.status.env_steps > stopped.status.env_steps + 1000 and len(facts.versions) > len(stopped.versions)

    cli.until(on)
    assert min(steps) >= stopped.status.env_steps, "never from zero"
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    ended = cli.end(process)
    assert time.monotonic() - asked < 3, "twice: at once"
    assert ended.code == 130
    assert not cli.processes()
    after = cli.facts()
    assert after.status.state == "stopped"
    assert after.comparisons[: len(stopped.comparisons)] == stopped.comparisons
    assert after.versions[: len(stopped.versions)] == stopped.versions


def test_lockstep_shows_its_progress_and_two_interrupts_leave_a_run_that_can_go_on(cli):
    cli.create(**ENDLESS)
    process = cli.start("resume", "r", "--mode", "lockstep")
    cli.until(lambda f: f.status.env_steps > 500)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # another one, or the two could arrive as one
    ended = cli.end(process, timeout=10)
    assert (ended.code, ended.err) == (130, "")
    assert "of 500,000 steps | " in ended.out
    assert "prefrl resume r     to go on" in ended.out
    assert cli.facts().status.state == "stopped"


NO_IMPORT = """
import sys
class Finder:
    def find_spec(name, *more):
        if name == "prefrl.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder)
from prefrl.__main__ import run
run()
"""


def test_an_interrupt_while_modules_are_imported_is_quiet(cli):
    ended = subprocess.run(
        [sys.executable, "-c", NO_IMPORT], env=cli.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


CRASH = """
import os
from prefrl.oracle.teachers import compare

def crash():
    def teach(left, right, stats, rng):
        if left.rewards.any() and not os.path.exists({mended!r}):  # it is well when it is tried out
            {crash}
        return compare(left.true_return, right.true_return)
    return teach
"""


CRASHES = {
    "raise": ("raise RuntimeError('the teacher has a headache')", "failed: RuntimeError: the teacher has a headache ("),
    "exit": ("os.write(2, b'the teacher has a headache'); os._exit(3)", "died 3 times"),
}


@pytest.mark.parametrize("error", CRASHES)
def test_a_role_that_keeps_dying_stops_the_run_with_its_last_words(cli, whole, monkeypatch, error):
    mended, (crash, times) = cli.folder / "mended", CRASHES[error]
    (cli.folder / f"crash_{error.lower()}.py").write_text(CRASH.format(mended=str(mended), crash=crash))
    monkeypatch.syspath_prepend(str(cli.folder))
    cli.create(label__oracle=f"crash_{error.lower()}:crash", policy__steps=1500, label__budget=20)
    ended = cli("resume", "r")
    assert ended.code == 2
    assert times in ended.err
    assert "the teacher has a headache" in ended.err
    assert "prefrl resume r" in ended.err
    assert "oracle.log" in ended.err
    assert not cli.processes()
    failed = cli.facts()
    assert failed.status.state == "failed"
    with cli.db() as db:
        oracle = next(w for w in workers(db, get_run(db, "r").id) if w.role == "oracle")
    assert not oracle.released, "the others do not take it for one that has nothing left to do"
    assert failed.events[-1].startswith("oracle ended with exit code")
    assert len(failed.events) == (3 if error == "exit" else 1)
    assert not failed.comparisons
    assert failed.status.env_steps == 256, "the untrained policy's steps are kept"
    if error == "raise":
        return
    mended.touch()
    ended = cli("resume", "r")
    assert ended.code == 0, ended.err
    whole(cli.facts(), budget=20, steps=1500)


def test_a_role_started_twice_by_hand_is_taken_over(cli, whole):
    cli.create(policy__steps=1500, label__budget=20)
    first = cli.start("worker", "r", "--role", "reward")
    cli.until(lambda f: f.pids.get("reward") == first.pid)
    rollout = cli.start("worker", "r", "--role", "rollout")
    cli.until(lambda f: f.status.open_queries)  # the first one has asked
    second = cli.start("worker", "r", "--role", "reward")
    ended = cli.end(first, timeout=30)
    assert ended.code == FENCED
    assert len(ended.err.splitlines()) == 1
    assert f"the role 'reward' now belongs to process {second.pid} on " in ended.err
    assert "this process must end" in ended.err
    oracle = cli.start("worker", "r", "--role", "oracle")
    for process in (rollout, second, oracle):
        ended = cli.end(process)
        assert ended.code == 0, ended.err
    facts = cli.facts()
    whole(facts, budget=20, steps=1500)
    assert len(facts.comparisons) == 20, "nothing is asked twice"


PROBE = """
import json, os, sys
import stable_baselines3
import torch
from prefrl.reward_model.nets import MLPEnsemble

def tell(role):
    with open({told!r} + role, "w") as file:
        json.dump([torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS"), os.environ.get("MKL_NUM_THREADS")], file)

def net(*sizes, **more):
    tell(sys.argv[sys.argv.index("--role") + 1] if "--role" in sys.argv else "parent")
    return MLPEnsemble(*sizes, **more)

class PPO(stable_baselines3.PPO):
    def train(self):
        tell("learner")
        super().train()
"""


@pytest.mark.parametrize(
    ("threads", "env", "expected"),
    [(1, {}, [1, "1", "1"]), (3, {"OMP_NUM_THREADS": "2"}, [2, "2", "3"])],
)
def test_each_process_has_one_thread_unless_the_user_says_otherwise(cli, monkeypatch, threads, env, expected):
    told = f"{cli.folder}/told-"
    (cli.folder / "probe.py").write_text(PROBE.format(told=told))
    monkeypatch.syspath_prepend(str(cli.folder))
    plugins = {"policy__learner": "probe:PPO", "reward__net": "probe:net"}
    cli.create(**plugins, policy__steps=512, label__budget=2, policy__threads=threads)
    ended = cli("resume", "r", **env)
    assert ended.code == 0, ended.err
    for role in ("reward", "rollout", "learner"):
        assert json.loads(Path(told + role).read_text()) == expected, role
