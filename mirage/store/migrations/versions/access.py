"""Tokens, stored responses, and the authentication of audit entries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """From the jobs of all users."""
    op.create_table(
        "tokens",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("token_id", "owner", "label", "scope")),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("created", "expires", "used")),
        sa.PrimaryKeyConstraint("token_id", name="pk_tokens"),
    )
    op.create_table(
        "answers",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("caller", "key")),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("caller", "key", name="pk_answers"),
    )
    op.create_index("ix_answers_time", "answers", ["time"])
    op.add_column("audit", sa.Column("how", sa.Text(), nullable=False, server_default=""))
