"""kill -9 in the middle of everything: no answer is lost, and the run ends as usual."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from prefrl.errors import ConfigError
from prefrl.run.create import check_resume
from prefrl.run.status import live_roles
from prefrl.run.supervisor import MAX_DEATHS
from prefrl.store.runs import get_run
from prefrl.store.schema import worker
from prefrl.store.workers import claim

ROLES = ("rollout", "reward", "oracle")


def far(facts, role):
    """How far a role has come with its own work."""
    return {
        "rollout": facts.status.env_steps,
        "reward": len(facts.versions),
        "oracle": len(facts.comparisons),
    }[role]


def pids_of(cli):
    """The processes of the roles, also those that have not come to claim their role yet."""
    found = {}
    for pid in cli.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except OSError:
            continue
        if "--role" in words:
            found[words[words.index("--role") + 1]] = pid
    return found


def kill_at_random(cli, process, n_kills, longest_s, seed):
    """Kill roles at random moments, whatever they are doing; returns which, and the comparisons before each kill.

    A role that dies ``MAX_DEATHS`` times without getting any further is given up by the supervisor, so this
    leaves one alone that is one death away from it.
    """
    rng = np.random.default_rng(seed)
    killed, before = [], []
    best, vain = dict.fromkeys(ROLES, 0), dict.fromkeys(ROLES, 0)
    while len(killed) < n_kills and process.poll() is None:
        time.sleep(rng.uniform(0, longest_s))
        role = str(rng.choice(ROLES))
        facts, pid = cli.facts(), pids_of(cli).get(role)
        if far(facts, role) > best[role]:
            vain[role] = 0
        if pid is None or vain[role] == MAX_DEATHS - 1:
            continue
        before.append(facts.comparisons)
        os.kill(pid, signal.SIGKILL)
        vain[role] += 1
        best[role] = max(best[role], far(cli.facts(), role))  # it does nothing more until it is started again
        killed.append(role)
    return killed, before


def check_kills(cli, whole, n_kills, steps, budget, longest_s, timeout):
    cli.create(policy__steps=steps, label__budget=budget)
    process = cli.start("resume", "r")
    killed, before = kill_at_random(cli, process, n_kills, longest_s, seed=1)
    ended = cli.end(process, timeout)
    assert ended.code == 0, ended.err + cli.logs()
    assert len(killed) == n_kills, "the run was too short for this test"
    assert set(killed) == set(ROLES)
    facts = cli.facts()
    whole(facts, budget=budget, steps=steps)
    for comparisons in before:
        assert facts.comparisons[: len(comparisons)] == comparisons, "no answer is lost or changed"
    assert len(facts.comparisons) == budget, "none is asked twice"
    for role in ROLES:
        told = [e for e in facts.events if e == f"{role} was killed by signal 9; started again"]
        assert len(told) == killed.count(role)
    assert not cli.processes()


def test_roles_may_be_killed_at_any_moment(cli, whole):
    check_kills(cli, whole, n_kills=6, steps=20_000, budget=60, longest_s=1.2, timeout=240)


@pytest.mark.slow
def test_roles_may_be_killed_fifty_times(cli, whole):
    check_kills(cli, whole, n_kills=50, steps=200_000, budget=400, longest_s=4.0, timeout=1800)


@pytest.mark.parametrize("everything", [False, True], ids=["the supervisor", "everything at once"])
def test_a_killed_supervisor_leaves_a_run_that_goes_on(cli, whole, everything):
    cli.create(policy__steps=6000)
    process = cli.start("resume", "r")
    facts = cli.until(lambda f: f.status.env_steps > 1000 and len(f.versions) > 2)
    children = pids_of(cli)
    assert sorted(children) == sorted(ROLES)
    process.kill()
    if everything:  # as in a power cut
        for pid in children.values():
            os.kill(pid, signal.SIGKILL)
    assert cli.gone(10 if not everything else 1), "without their supervisor they leave by themselves"
    cli.end(process)
    left = cli.facts()
    assert left.status.state == "running", "nobody was there to say anything else"
    assert bool(left.pids) == everything, "those who could have given their roles back"
    assert not any(role.alive for role in left.status.roles)
    resumed = cli("resume", "r")
    assert resumed.code == 0, resumed.err
    after = cli.facts()
    whole(after, steps=6000)
    for earlier in (facts, left):
        assert after.comparisons[: len(earlier.comparisons)] == earlier.comparisons
        assert after.versions[: len(earlier.versions)] == earlier.versions


def test_a_process_of_this_machine_that_has_ended_is_not_alive(cli):
    cli.create()
    with cli.db() as db:
        run = get_run(db, "r")
        claim(db, run.id, "rollout")

        def holder(**values):
            with db.write() as connection:
                connection.execute(sa.update(worker).values(values))

        with pytest.raises(ConfigError, match=rf"'r' is running: its rollout \(process {os.getpid()} on"):
            check_resume(db, run, "async")
        ended = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
        holder(pid=ended.pid)
        assert ended.stdout.read() == b""
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert live_roles(db, run) == [], "a zombie"
        ended.communicate()
        assert live_roles(db, run) == []
        check_resume(db, run, "async")
        holder(host="elsewhere")
        with pytest.raises(
            ConfigError, match=r"on elsewhere\) gave a sign of life 0 s ago; stop it first, or wait 15 s"
        ):
            check_resume(db, run, "async")
