"""The tables, in the order in which a comparison comes into being.

``run`` -> ``segment`` -> ``query`` -> ``lease`` -> ``comparison`` -> ``reward_version``.

A query is only work; it moves along these arrows, each one guarded ``UPDATE … WHERE state = …``
(see ``queue.py``)::

    proposed --lease--> leased --answer--> answered
       |  ^               | |
       |  +---(ran out)---+ +--skip--> skipped --lease (others at once, the same one later)--> leased
       +--expire--> expired

A question that is asked again (see ``again.py``) is made leased, in the place of a proposed one that expires, and
expires itself where it is skipped or its lease runs out.

A comparison is evidence about two segments: append-only, numbered without gaps by ``seq``, never
updated; an undo or an edit is a later row that ``supersedes`` an earlier one.

Binary payloads are alone in tables of their own (``*_data``, ``*_weights``, ``segment_truth``,
``clip``), so that no listing ever reads them by accident. Times are integer milliseconds by the
database's clock. Whoever changes a table here adds a migration; a test compares the two.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy import ForeignKey as Key

from prefrl.store.clock import now_ms

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

RUN_STATES = ("created", "running", "stopped", "done", "failed")
QUERY_STATES = ("proposed", "leased", "answered", "skipped", "expired")
CLIP_STATES = ("pending", "ready", "failed")
# Written out, not bound: a planner uses a partial index only for the very same words.
OPEN = sa.text("state IN ('proposed', 'leased', 'skipped')")


class PlainJson(sa.TypeDecorator[Any]):
    """JSON that both engines can read back: no NaN, no infinity, no Python objects."""

    impl = sa.JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: sa.Dialect) -> Any:
        """Refuses here what PostgreSQL would refuse with a longer face, and SQLite not at all."""
        json.dumps(value, allow_nan=False)
        return value


Json = PlainJson()
BigId = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER PRIMARY KEY counts up on SQLite


def _id() -> Column[int]:
    return Column("id", BigId, primary_key=True, autoincrement=True)


def _of_run() -> Column[int]:
    return Column("run_id", BigId, Key("run.id", ondelete="CASCADE"), nullable=False)


def _ms(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, default=now_ms())


def _one_of(column: str, values: tuple[str, ...], name: str) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(value) for value in values)})", name=name)


run = Table(
    "run",
    metadata,
    _id(),
    Column("name", Text, nullable=False),
    Column("config", Json, nullable=False),
    Column("versions", Json, nullable=False),
    Column("state", Text, nullable=False, default="created"),
    _ms("created_ms"),
    UniqueConstraint("name"),
    _one_of("state", RUN_STATES, "state"),
    sqlite_autoincrement=True,
)

# One row per run and number series: "comparison" holds the last seq, "reward" the last version.
# Its row lock makes commit order and number order the same, so a tail never misses a row.
counter = Table(
    "counter",
    metadata,
    Column("run_id", BigId, Key("run.id", ondelete="CASCADE"), primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False, default=0),
)

worker = Table(
    "worker",
    metadata,
    Column("run_id", BigId, Key("run.id", ondelete="CASCADE"), primary_key=True),
    Column("role", Text, primary_key=True),
    Column("token", Text, nullable=False),  # who writes with another token has been taken over
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("state", Text, nullable=False, default=""),
    Column("env_steps", BigInteger, nullable=False, default=0),
    Column("detail", Json, nullable=False),
    Column("released", Boolean, nullable=False, default=False),
    _ms("started_ms"),
    _ms("heartbeat_ms"),
    UniqueConstraint("token"),
)

segment = Table(
    "segment",
    metadata,
    _id(),
    _of_run(),
    Column("digest", Text, nullable=False),  # sha256 of dtype, shape and bytes; of a file of a folder of videos its own
    Column("n_steps", Integer, nullable=False),
    Column("env_index", Integer, nullable=False),
    Column("episode", BigInteger, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("env_steps", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    _ms("created_ms"),
    UniqueConstraint("run_id", "digest"),
    CheckConstraint("n_steps > 0", name="n_steps"),
    Index("ix_segment_recent", "run_id", "id"),
    sqlite_autoincrement=True,  # ids of pruned segments never come back
)

# None for a video of a folder (source "clip:FILE", see folder.py): it has no arrays, only its clip.
segment_data = Table(
    "segment_data",
    metadata,
    Column("segment_id", BigId, Key("segment.id", ondelete="CASCADE"), primary_key=True),
    Column("arrays", LargeBinary, nullable=False),  # npz: obs (of stacks of frames: frames), act
    Column("states", LargeBinary),  # npz: states, to draw the clip from
)

# Only the oracle and the evaluation read this one; the reward role has no statement that names it.
segment_truth = Table(
    "segment_truth",
    metadata,
    Column("segment_id", BigId, Key("segment.id", ondelete="CASCADE"), primary_key=True),
    Column("true_return", Float(53), nullable=False),
    Column("rewards", LargeBinary, nullable=False),  # npz: rewards (T,)
)

clip = Table(
    "clip",
    metadata,
    Column("segment_id", BigId, Key("segment.id", ondelete="CASCADE"), primary_key=True),
    Column("state", Text, nullable=False, default="pending"),
    Column("video", LargeBinary),
    Column("reason", Text),
    Column("detail", Json, nullable=False),
    _ms("updated_ms"),
    _one_of("state", CLIP_STATES, "state"),
    CheckConstraint("(state = 'ready') = (video IS NOT NULL)", name="video"),
    CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name="reason"),
)

query = Table(
    "query",
    metadata,
    _id(),
    _of_run(),
    Column("segment_1", BigId, Key("segment.id"), nullable=False),
    Column("segment_2", BigId, Key("segment.id"), nullable=False),
    Column("state", Text, nullable=False, default="proposed"),
    Column("lease_token", Text),  # the current one; no foreign key, lease points here already
    Column("lease_expires_ms", BigInteger),
    Column("purpose", Text, nullable=False),  # train, held_out (never trained on), or again: overlap, repeat, gold
    Column("reward_version", BigInteger, nullable=False),
    Column("env_steps", BigInteger, nullable=False),
    Column("score", Float(53)),
    _ms("proposed_ms"),
    Column("closed_ms", BigInteger),
    _one_of("state", QUERY_STATES, "state"),
    CheckConstraint("segment_1 <> segment_2", name="pair"),
    CheckConstraint("(state = 'leased') = (lease_token IS NOT NULL)", name="lease_token"),
    CheckConstraint("(state = 'leased') = (lease_expires_ms IS NOT NULL)", name="lease_expires_ms"),
    CheckConstraint("(state IN ('answered', 'expired')) = (closed_ms IS NOT NULL)", name="closed_ms"),
    Index("ix_query_open", "run_id", "id", sqlite_where=OPEN, postgresql_where=OPEN),
    sqlite_autoincrement=True,
)
for _state in QUERY_STATES:
    _where = sa.text(f"state = '{_state}'")
    Index(
        f"ix_query_{_state}",
        query.c.run_id,
        query.c.lease_expires_ms if _state == "leased" else query.c.env_steps,
        sqlite_where=_where,
        postgresql_where=_where,
    )
Index("ix_query_segment_1", query.c.segment_1)
Index("ix_query_segment_2", query.c.segment_2)

# One row per hand-out, kept for ever: which side was left belongs to the lease, not to the query.
lease = Table(
    "lease",
    metadata,
    Column("token", Text, primary_key=True),
    Column("query_id", BigId, Key("query.id", ondelete="CASCADE"), nullable=False),
    Column("annotator", Text, nullable=False),
    Column("shown_left", Integer, nullable=False),
    _ms("leased_ms"),
    Column("expires_ms", BigInteger, nullable=False),
    CheckConstraint("shown_left IN (1, 2)", name="shown_left"),
    Index("ix_lease_query_id", "query_id"),
)

# A pair whose right answer is known: ``mu`` is the mass on segment 1, which has the lower id.
gold = Table(
    "gold",
    metadata,
    Column("run_id", BigId, Key("run.id", ondelete="CASCADE"), primary_key=True),
    Column("segment_1", BigId, Key("segment.id", ondelete="CASCADE"), primary_key=True),
    Column("segment_2", BigId, Key("segment.id", ondelete="CASCADE"), primary_key=True),
    Column("mu", Float(53), nullable=False),
    Column("annotator", Text, nullable=False),
    _ms("created_ms"),
    CheckConstraint("segment_1 < segment_2", name="pair"),
    CheckConstraint("mu IN (0, 0.5, 1)", name="mu"),
    Index("ix_gold_segment_1", "segment_1"),
    Index("ix_gold_segment_2", "segment_2"),
)

query_skip = Table(
    "query_skip",
    metadata,
    _id(),
    Column("query_id", BigId, Key("query.id", ondelete="CASCADE"), nullable=False),
    Column("annotator", Text, nullable=False),
    _ms("at_ms"),
    Index("ix_query_skip_query_id", "query_id", "annotator"),
    sqlite_autoincrement=True,
)

comparison = Table(
    "comparison",
    metadata,
    _id(),
    _of_run(),
    Column("seq", BigInteger, nullable=False),
    Column("uuid", Text, nullable=False),  # made by the client: sending twice stores once
    Column("query_id", BigId, Key("query.id")),
    Column("lease_token", Text, Key("lease.token")),
    Column("segment_1", BigId, Key("segment.id"), nullable=False),
    Column("segment_2", BigId, Key("segment.id"), nullable=False),
    Column("preference", Text, nullable=False),
    Column("mu", Float(53)),
    Column("shown_left", Integer, nullable=False),
    Column("annotator", Text, nullable=False),
    Column("supersedes", BigInteger),
    Column("late", Boolean, nullable=False),
    Column("response_ms", BigInteger),
    Column("env_steps", BigInteger, nullable=False),
    Column("detail", Json, nullable=False),
    _ms("created_ms"),
    UniqueConstraint("run_id", "seq"),
    UniqueConstraint("uuid"),
    UniqueConstraint("run_id", "supersedes"),
    _one_of("preference", ("left", "right", "tie", "incomparable", "withdrawn"), "preference"),
    CheckConstraint("segment_1 <> segment_2", name="pair"),
    CheckConstraint("shown_left IN (1, 2)", name="shown_left"),
    CheckConstraint("mu BETWEEN 0 AND 1", name="mu"),
    CheckConstraint("(mu IS NULL) = (preference IN ('incomparable', 'withdrawn'))", name="trains"),
    CheckConstraint("supersedes < seq", name="supersedes"),
    Index("ix_comparison_query_id", "query_id"),
    Index("ix_comparison_segment_1", "segment_1"),
    Index("ix_comparison_segment_2", "segment_2"),
    sqlite_autoincrement=True,
)

reward_version = Table(
    "reward_version",
    metadata,
    _id(),
    _of_run(),
    Column("version", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("env_steps", BigInteger, nullable=False),
    Column("metrics", Json, nullable=False),
    _ms("created_ms"),
    UniqueConstraint("run_id", "version"),
    CheckConstraint("version > 0", name="version"),
    sqlite_autoincrement=True,
)

reward_weights = Table(
    "reward_weights",
    metadata,
    Column("reward_version_id", BigId, Key("reward_version.id", ondelete="CASCADE"), primary_key=True),
    Column("weights", LargeBinary, nullable=False),
)

policy_checkpoint = Table(
    "policy_checkpoint",
    metadata,
    _id(),
    _of_run(),
    Column("env_steps", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("meta", Json, nullable=False),
    _ms("created_ms"),
    Index("ix_policy_checkpoint_run_id", "run_id", "id"),
    sqlite_autoincrement=True,
)

policy_weights = Table(
    "policy_weights",
    metadata,
    Column("checkpoint_id", BigId, Key("policy_checkpoint.id", ondelete="CASCADE"), primary_key=True),
    Column("weights", LargeBinary, nullable=False),
)

metric = Table(
    "metric",
    metadata,
    _id(),
    _of_run(),
    Column("role", Text, nullable=False),
    Column("env_steps", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("value", Float(53)),  # NULL is NaN: SQLite cannot store one
    _ms("at_ms"),
    Index("ix_metric_name", "run_id", "name", "id"),
    Index("ix_metric_tail", "run_id", "id"),
    sqlite_autoincrement=True,
)

event = Table(
    "event",
    metadata,
    _id(),
    _of_run(),
    Column("role", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("message", Text, nullable=False),
    _ms("at_ms"),
    Index("ix_event_tail", "run_id", "id"),
    sqlite_autoincrement=True,
)
