"""No connection crosses a fork.

A forked child inherits SQLite's in-memory table of locks but not the locks themselves (they belong to
a process): it would write to a journal that its parent deletes (sqlite.org/howtocorrupt.html, 2.6).
So, before a fork, idle connections are closed, and transactions of other threads are waited for.
Whatever is open nevertheless is never touched again in the child.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakSet

WAIT_S = 5.0  # a thread that sits in a transaction for longer must not stop the whole program


class Forgetful(Protocol):
    """Something that can close its idle connections."""

    def release_idle(self) -> None:
        """Closes connections that nobody is using; new ones are made on demand."""


class _Gate:
    """Counts the transactions of each thread, and holds new ones back while one thread forks."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.busy: Counter[int] = Counter()
        self.forking = False

    def others_idle(self) -> bool:
        me = threading.get_ident()
        return not any(count for thread, count in self.busy.items() if thread != me)


_gate = _Gate()
_watched: WeakSet[Forgetful] = WeakSet()


def watch(database: Forgetful) -> None:
    """Closes the idle connections of this one before every fork from now on."""
    with _gate.changed:
        _watched.add(database)


@contextmanager
def transaction() -> Iterator[None]:
    """Marks this thread as inside a transaction."""
    gate, me = _gate, threading.get_ident()
    with gate.changed:
        if not gate.busy[me]:  # a nested one must not wait for the fork that waits for the outer one
            gate.changed.wait_for(lambda: not gate.forking)
        gate.busy[me] += 1
    try:
        yield
    finally:
        with gate.changed:
            gate.busy[me] -= 1
            if not gate.busy[me]:
                del gate.busy[me]
            gate.changed.notify_all()


@contextmanager
def exclusive() -> Iterator[None]:
    """Held for a moment while engines are made, so that no fork sees half of one."""
    with _gate.changed:
        yield


def _before() -> None:
    _gate.changed.acquire()
    _gate.forking = True
    _gate.changed.wait_for(_gate.others_idle, WAIT_S)
    for database in list(_watched):
        database.release_idle()


def _in_parent() -> None:
    _gate.forking = False
    _gate.changed.notify_all()
    _gate.changed.release()


def _in_child() -> None:
    global _gate
    _gate = _Gate()  # the old lock may be waited for by threads that do not exist here


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
