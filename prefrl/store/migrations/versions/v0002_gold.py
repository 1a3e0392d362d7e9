"""Pairs whose right answer is known."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "gold",
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("segment_1", BigId, nullable=False),
        sa.Column("segment_2", BigId, nullable=False),
        sa.Column("mu", sa.Float(precision=53), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("mu IN (0, 0.5, 1)", name=op.f("ck_gold_mu")),
        sa.CheckConstraint("segment_1 < segment_2", name=op.f("ck_gold_pair")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_gold_run_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["segment_1"], ["segment.id"], name=op.f("fk_gold_segment_1"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["segment_2"], ["segment.id"], name=op.f("fk_gold_segment_2"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "segment_1", "segment_2", name=op.f("pk_gold")),
    )
    op.create_index("ix_gold_segment_1", "gold", ["segment_1"], unique=False)
    op.create_index("ix_gold_segment_2", "gold", ["segment_2"], unique=False)
