"""The first schema: see `prefrl.store.schema` for what the tables mean."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True)
BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Makes all tables."""
    _run_tables()
    _segment_tables()
    _query_tables()
    _comparison_tables()
    _weight_tables()


def _run_tables() -> None:
    op.create_table(
        "run",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", Json, nullable=False),
        sa.Column("versions", Json, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('created', 'running', 'stopped', 'done', 'failed')", name=op.f("ck_run_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("name", name=op.f("uq_run_name")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "counter",
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_counter_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "name", name=op.f("pk_counter")),
    )
    op.create_table(
        "worker",
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("detail", Json, nullable=False),
        sa.Column("released", sa.Boolean(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_worker_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "role", name=op.f("pk_worker")),
        sa.UniqueConstraint("token", name=op.f("uq_worker_token")),
    )
    op.create_table(
        "event",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_event_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_tail", "event", ["run_id", "id"], unique=False)
    op.create_table(
        "metric",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(precision=53), nullable=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metric")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_metric_name", "metric", ["run_id", "name", "id"], unique=False)
    op.create_index("ix_metric_tail", "metric", ["run_id", "id"], unique=False)


def _segment_tables() -> None:
    op.create_table(
        "segment",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("n_steps", sa.Integer(), nullable=False),
        sa.Column("env_index", sa.Integer(), nullable=False),
        sa.Column("episode", sa.BigInteger(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("n_steps > 0", name=op.f("ck_segment_n_steps")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_segment_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segment")),
        sa.UniqueConstraint("run_id", "digest", name=op.f("uq_segment_run_id_digest")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_segment_recent", "segment", ["run_id", "id"], unique=False)
    op.create_table(
        "segment_data",
        sa.Column("segment_id", BigId, nullable=False),
        sa.Column("arrays", sa.LargeBinary(), nullable=False),
        sa.Column("states", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["segment_id"], ["segment.id"], name=op.f("fk_segment_data_segment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("segment_id", name=op.f("pk_segment_data")),
    )
    op.create_table(
        "segment_truth",
        sa.Column("segment_id", BigId, nullable=False),
        sa.Column("true_return", sa.Float(precision=53), nullable=False),
        sa.Column("rewards", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["segment_id"], ["segment.id"], name=op.f("fk_segment_truth_segment_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("segment_id", name=op.f("pk_segment_truth")),
    )
    op.create_table(
        "clip",
        sa.Column("segment_id", BigId, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("video", sa.LargeBinary(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("detail", Json, nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name=op.f("ck_clip_reason")),
        sa.CheckConstraint("(state = 'ready') = (video IS NOT NULL)", name=op.f("ck_clip_video")),
        sa.CheckConstraint("state IN ('pending', 'ready', 'failed')", name=op.f("ck_clip_state")),
        sa.ForeignKeyConstraint(["segment_id"], ["segment.id"], name=op.f("fk_clip_segment_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("segment_id", name=op.f("pk_clip")),
    )


def _query_tables() -> None:
    op.create_table(
        "query",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("segment_1", BigId, nullable=False),
        sa.Column("segment_2", BigId, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("reward_version", sa.BigInteger(), nullable=False),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("score", sa.Float(precision=53), nullable=True),
        sa.Column("proposed_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(state = 'leased') = (lease_expires_ms IS NOT NULL)", name=op.f("ck_query_lease_expires_ms")
        ),
        sa.CheckConstraint("(state = 'leased') = (lease_token IS NOT NULL)", name=op.f("ck_query_lease_token")),
        sa.CheckConstraint(
            "(state IN ('answered', 'expired')) = (closed_ms IS NOT NULL)", name=op.f("ck_query_closed_ms")
        ),
        sa.CheckConstraint(
            "state IN ('proposed', 'leased', 'answered', 'skipped', 'expired')", name=op.f("ck_query_state")
        ),
        sa.CheckConstraint("segment_1 <> segment_2", name=op.f("ck_query_pair")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_query_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["segment_1"], ["segment.id"], name=op.f("fk_query_segment_1")),
        sa.ForeignKeyConstraint(["segment_2"], ["segment.id"], name=op.f("fk_query_segment_2")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_query")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_query_answered",
        "query",
        ["run_id", "env_steps"],
        unique=False,
        sqlite_where=sa.text("state = 'answered'"),
        postgresql_where=sa.text("state = 'answered'"),
    )
    op.create_index(
        "ix_query_expired",
        "query",
        ["run_id", "env_steps"],
        unique=False,
        sqlite_where=sa.text("state = 'expired'"),
        postgresql_where=sa.text("state = 'expired'"),
    )
    op.create_index(
        "ix_query_leased",
        "query",
        ["run_id", "lease_expires_ms"],
        unique=False,
        sqlite_where=sa.text("state = 'leased'"),
        postgresql_where=sa.text("state = 'leased'"),
    )
    op.create_index(
        "ix_query_open",
        "query",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("state IN ('proposed', 'leased', 'skipped')"),
        postgresql_where=sa.text("state IN ('proposed', 'leased', 'skipped')"),
    )
    op.create_index(
        "ix_query_proposed",
        "query",
        ["run_id", "env_steps"],
        unique=False,
        sqlite_where=sa.text("state = 'proposed'"),
        postgresql_where=sa.text("state = 'proposed'"),
    )
    op.create_index("ix_query_segment_1", "query", ["segment_1"], unique=False)
    op.create_index("ix_query_segment_2", "query", ["segment_2"], unique=False)
    op.create_index(
        "ix_query_skipped",
        "query",
        ["run_id", "env_steps"],
        unique=False,
        sqlite_where=sa.text("state = 'skipped'"),
        postgresql_where=sa.text("state = 'skipped'"),
    )
    op.create_table(
        "lease",
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("query_id", BigId, nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("shown_left", sa.Integer(), nullable=False),
        sa.Column("leased_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("shown_left IN (1, 2)", name=op.f("ck_lease_shown_left")),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name=op.f("fk_lease_query_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token", name=op.f("pk_lease")),
    )
    op.create_index("ix_lease_query_id", "lease", ["query_id"], unique=False)
    op.create_table(
        "query_skip",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("query_id", BigId, nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name=op.f("fk_query_skip_query_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_query_skip")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_query_skip_query_id", "query_skip", ["query_id", "annotator"], unique=False)


def _comparison_tables() -> None:
    op.create_table(
        "comparison",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("query_id", BigId, nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("segment_1", BigId, nullable=False),
        sa.Column("segment_2", BigId, nullable=False),
        sa.Column("preference", sa.Text(), nullable=False),
        sa.Column("mu", sa.Float(precision=53), nullable=True),
        sa.Column("shown_left", sa.Integer(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("supersedes", sa.BigInteger(), nullable=True),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("response_ms", sa.BigInteger(), nullable=True),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("detail", Json, nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(mu IS NULL) = (preference IN ('incomparable', 'withdrawn'))", name=op.f("ck_comparison_trains")
        ),
        sa.CheckConstraint(
            "preference IN ('left', 'right', 'tie', 'incomparable', 'withdrawn')",
            name=op.f("ck_comparison_preference"),
        ),
        sa.CheckConstraint("mu BETWEEN 0 AND 1", name=op.f("ck_comparison_mu")),
        sa.CheckConstraint("segment_1 <> segment_2", name=op.f("ck_comparison_pair")),
        sa.CheckConstraint("shown_left IN (1, 2)", name=op.f("ck_comparison_shown_left")),
        sa.CheckConstraint("supersedes < seq", name=op.f("ck_comparison_supersedes")),
        sa.ForeignKeyConstraint(["lease_token"], ["lease.token"], name=op.f("fk_comparison_lease_token")),
        sa.ForeignKeyConstraint(["query_id"], ["query.id"], name=op.f("fk_comparison_query_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_comparison_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["segment_1"], ["segment.id"], name=op.f("fk_comparison_segment_1")),
        sa.ForeignKeyConstraint(["segment_2"], ["segment.id"], name=op.f("fk_comparison_segment_2")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparison")),
        sa.UniqueConstraint("run_id", "seq", name=op.f("uq_comparison_run_id_seq")),
        sa.UniqueConstraint("run_id", "supersedes", name=op.f("uq_comparison_run_id_supersedes")),
        sa.UniqueConstraint("uuid", name=op.f("uq_comparison_uuid")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_comparison_query_id", "comparison", ["query_id"], unique=False)
    op.create_index("ix_comparison_segment_1", "comparison", ["segment_1"], unique=False)
    op.create_index("ix_comparison_segment_2", "comparison", ["segment_2"], unique=False)


def _weight_tables() -> None:
    op.create_table(
        "reward_version",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("metrics", Json, nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("version > 0", name=op.f("ck_reward_version_version")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_reward_version_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reward_version")),
        sa.UniqueConstraint("run_id", "version", name=op.f("uq_reward_version_run_id_version")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "reward_weights",
        sa.Column("reward_version_id", BigId, nullable=False),
        sa.Column("weights", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["reward_version_id"],
            ["reward_version.id"],
            name=op.f("fk_reward_weights_reward_version_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("reward_version_id", name=op.f("pk_reward_weights")),
    )
    op.create_table(
        "policy_checkpoint",
        sa.Column("id", BigId, autoincrement=True, nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("env_steps", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("meta", Json, nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_policy_checkpoint_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_checkpoint")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_policy_checkpoint_run_id", "policy_checkpoint", ["run_id", "id"], unique=False)
    op.create_table(
        "policy_weights",
        sa.Column("checkpoint_id", BigId, nullable=False),
        sa.Column("weights", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"],
            ["policy_checkpoint.id"],
            name=op.f("fk_policy_weights_checkpoint_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", name=op.f("pk_policy_weights")),
    )
