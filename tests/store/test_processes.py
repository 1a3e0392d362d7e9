"""Many processes at once, forks, and kill -9."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from prefrl.store import comparisons, metrics, queue, runs, segments
from prefrl.store.engine import Database

LEASE = """
    import sys
    from prefrl.store import Database, queue
    with Database.open(sys.argv[1]) as db:
        sys.stdin.readline()
        for _ in range(100):
            for lease in queue.lease(db, int(sys.argv[2]), sys.argv[3]):
                print(lease.query_id)
"""

WRITE = """
    import sys
    from prefrl.store import Database, comparisons
    from prefrl.types import Preference
    url, run_id, one, two, name, n = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5], int(sys.argv[6])
    with Database.open(url) as db:
        size = int(sys.argv[7])
        for number in range(0, n, size):
            numbers = range(number, number + size)
            rows = [comparisons.NewComparison(one, two, Preference.LEFT, name, f"{name}-{i}") for i in numbers]
            comparisons.add_comparisons(db, run_id, rows)
            print(number, flush=True)
"""


def test_eight_processes_lease_each_query_once(db: Database, database_url: str, run_id, ids, start, finish) -> None:
    asked = queue.propose(db, run_id, [(ids[0], ids[1])] * 800)
    processes = [start(LEASE, database_url, run_id, f"annotator {number}") for number in range(8)]
    outputs = finish(processes_told_to_go(processes))
    taken = [int(line) for output in outputs for line in output.split()]
    assert len(taken) == 800
    assert sorted(taken) == asked
    assert queue.counts(db, run_id)["leased"] == 800


def processes_told_to_go(processes):
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    return processes


def test_a_tail_misses_nothing(db: Database, database_url: str, run_id, ids, start, finish) -> None:
    writers = [start(WRITE, database_url, run_id, ids[0], ids[1], f"w{number}", 1000, 5) for number in range(3)]
    drains = [threading.Thread(target=writer.stdout.read) for writer in writers]
    for drain in drains:
        drain.start()
    seen: list[int] = []
    deadline = time.monotonic() + 60
    while len(seen) < 3000 and time.monotonic() < deadline:
        new = comparisons.tail(db, run_id, seen[-1] if seen else 0)
        seen.extend(row.seq for row in new)
        time.sleep(0.01)  # leaves the cores to the writers
    for drain in drains:
        drain.join()
    finish(writers)
    assert seen == list(range(1, 3001))


def test_kill_in_the_middle_of_writing(db: Database, database_url: str, run_id, ids, start) -> None:
    rng = random.Random(0)
    confirmed = 0
    for attempt in range(3):
        writer = start(WRITE, database_url, run_id, ids[0], ids[1], f"w{attempt}", 100_000, 1)
        for _ in range(rng.randrange(5, 40)):
            assert writer.stdout.readline()
        writer.kill()
        confirmed += 5
    rows = comparisons.tail(db, run_id)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert len(rows) >= confirmed
    for attempt in range(3):  # each writer's rows are there without a hole
        mine = [row.uuid for row in rows if row.annotator == f"w{attempt}"]
        assert mine == [f"w{attempt}-{number}" for number in range(len(mine))]
    with db.read() as connection:
        last = connection.execute(sa.text("SELECT value FROM counter WHERE name = 'comparison'")).scalar()
        assert last == len(rows)
        if db.dialect == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []


def test_a_killed_transaction_leaves_no_trace_and_no_lock(db: Database, database_url: str, run_id, ids, start) -> None:
    script = """
        import sys, time
        import sqlalchemy as sa
        from prefrl.store import Database
        with Database.open(sys.argv[1]) as db, db.write() as connection:
            connection.execute(sa.text("UPDATE counter SET value = 77"))
            connection.execute(sa.text("INSERT INTO event (run_id, role, kind, message, at_ms) "
                                       "VALUES (1, 'x', 'x', 'half', 0)"))
            print("inside", flush=True)
            time.sleep(60)
    """
    writer = start(script, database_url)
    assert writer.stdout.readline() == "inside\n"
    writer.kill()
    writer.wait()
    metrics.add_event(db, run_id, "me", "note", "whole")
    assert [one.message for one in metrics.events(db, run_id)] == ["whole"]
    new = comparisons.NewComparison(ids[0], ids[1], comparisons.Preference.LEFT, "me", "u")
    assert comparisons.add_comparisons(db, run_id, [new])[0].seq == 1


def test_what_a_dead_process_collected_is_still_there(database_url: str, start, finish) -> None:
    script = """
        import os, signal, sys
        import numpy as np
        from prefrl.store import Database, queue, runs, segments
        from prefrl.types import Answer, Preference, Segment
        db = Database.create(sys.argv[1])
        run = runs.create_run(db, "hopper", {}, {}).id
        some = [Segment(np.full((5, 2), i), np.zeros((5, 1))) for i in range(40)]
        ids = segments.add_segments(db, run, some, None)
        queue.propose(db, run, [(ids[2 * i], ids[2 * i + 1]) for i in range(20)])
        for lease in queue.lease(db, run, "ann", n=10):
            queue.answer(db, [Answer(lease.query_id, lease.token, Preference.LEFT, "ann", lease.token)])
        os.kill(os.getpid(), signal.SIGKILL)
    """
    process = start(script, database_url)
    process.communicate(timeout=60)
    assert process.returncode == -9
    with Database.open(database_url) as db:
        run_id = runs.get_run(db, "hopper").id
        rows = comparisons.tail(db, run_id)
        assert len(rows) == 10
        assert len(segments.load_segments(db, {row.segment_1 for row in rows})) == 10
        assert len(queue.lease(db, run_id, "bob", n=99)) == 10


def _write_events(db: Database, run_id: int, name: str, n: int) -> None:
    for number in range(n):
        metrics.add_event(db, run_id, name, "note", f"{name} {number}")


def _in_child(db: Database, run_id: int, name: str, n: int) -> None:
    _write_events(db, run_id, name, n)
    with db.read() as connection:
        connection.execute(sa.text("SELECT count(*) FROM event")).scalar()


@pytest.mark.filterwarnings(
    # Python warns of any fork in a process with threads; that it goes well is what is tested here.
    "ignore:.*multi-threaded.*fork:DeprecationWarning"
)
def test_forked_workers_and_their_parent_write(db: Database, run_id: int) -> None:
    metrics.add_event(db, run_id, "before", "note", "")
    stop = threading.Event()
    n_thread = 0

    def keep_writing() -> None:
        nonlocal n_thread
        while not stop.is_set():
            metrics.add_event(db, run_id, "thread", "note", f"{n_thread}")
            n_thread += 1
            time.sleep(0.01)

    thread = threading.Thread(target=keep_writing)
    thread.start()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_in_child, args=(db, run_id, f"child {i}", 200)) for i in range(6)]
    for child in children:
        child.start()
    _write_events(db, run_id, "parent", 199)
    db.release_idle()  # the parent's last connection may go away while children write
    for child in children:
        child.join(timeout=60)
    stop.set()
    thread.join()
    assert [child.exitcode for child in children] == [0] * 6
    roles = [one.role for one in metrics.events(db, run_id, limit=None)]
    assert len(roles) == 1400 + n_thread
    assert n_thread > 0
    with db.read() as connection:
        if db.dialect == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


def test_no_connection_crosses_a_fork(sqlite_url: str) -> None:
    """A child must not hold SQLite's idea of its parent's locks: see `prefrl.store.forks`."""
    with Database.create(sqlite_url) as db:
        with db.read(), db.write():
            pass
        files = [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()]
        assert [name for name in files if "test.db" in name]
        pid = os.fork()
        if pid == 0:
            try:
                left = [os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()]
                os._exit(int(any("test.db" in name for name in left)))
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def test_threads_share_a_handle(db: Database, run_id: int) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            _write_events(db, run_id, name, 25)
            assert metrics.events(db, run_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(metrics.events(db, run_id, limit=None)) == 150


def test_viewers_do_not_disturb_a_writer(sqlite_url: str, start, finish) -> None:
    with Database.create(sqlite_url) as db:
        run_id = runs.create_run(db, "hopper", {}, {}).id
        one, two = segments.add_segments(db, run_id, [_segment(1), _segment(2)], None)
        writer = start(WRITE, sqlite_url, run_id, one, two, "w", 60, 1)
        for _ in range(20):
            with Database.open(sqlite_url, readonly=True) as viewer:
                runs.get_run(viewer, "hopper")
                queue.counts(viewer, run_id)
                comparisons.tail(viewer, run_id)
        finish([writer])
        assert len(comparisons.tail(db, run_id)) == 60


def _segment(number: int):
    import numpy as np

    from prefrl.types import Segment

    return Segment(np.full((2, 1), number), np.zeros((2, 1)))


VIEW = """
    import os, sys
    import sqlalchemy as sa
    from prefrl.errors import StoreError
    from prefrl.store import Database, comparisons, metrics, queue, runs, workers
    sa.create_engine("sqlite://").dispose()
    if os.geteuid() == 0:  # root may write anything: become somebody else, once all is imported
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    with Database.open(sys.argv[1], readonly=True) as db:
        run = runs.get_run(db, "hopper").id
        comparisons.tail(db, run), queue.counts(db, run), workers.workers(db, run)
        queue.why_empty(db, run, "ann")
        try:
            metrics.add_event(db, run, "viewer", "note", "")
        except StoreError as error:
            print(error)
"""


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o777), (0o444, 0o555), (0o644, 0o555)])
def test_read_only_viewers_change_no_byte(start, finish, file_mode: int, folder_mode: int) -> None:
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="prefrl-view-", dir="/tmp"))  # tmp_path is closed to other users
    path = folder / "x y%20#.db"
    try:
        with Database.create(f"sqlite:///{folder}/made.db") as db:
            runs.create_run(db, "hopper", {}, {})
        (folder / "made.db").rename(path)
        path.chmod(file_mode)
        folder.chmod(folder_mode)
        before = path.read_bytes(), path.stat().st_mtime_ns
        url = f"sqlite:///{path}"
        (out,) = finish([start(VIEW, url)])
        assert "opened for reading only" in out
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_viewer_sees_what_a_live_writer_committed(sqlite_url: str) -> None:
    with Database.create(sqlite_url) as db, Database.open(sqlite_url, readonly=True) as viewer:
        runs.create_run(db, "hopper", {}, {})
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        assert path.with_name(path.name + "-wal").stat().st_size > 0
        assert [run.name for run in runs.list_runs(viewer)] == ["hopper"]


def test_a_locked_database_is_one_line(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefrl.errors import StoreError
    from prefrl.store import engine

    monkeypatch.setattr(engine, "BUSY_S", 0.1)
    with Database.create(sqlite_url) as db:
        other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has held the write lock"):
            runs.create_run(db, "hopper", {}, {})
        assert runs.list_runs(db) == []  # readers do not wait
        other.close()
