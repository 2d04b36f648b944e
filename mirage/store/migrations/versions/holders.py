"""Whose a user's name is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """From the times at which jobs became eligible."""
    op.create_table(
        "holders",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_holders"),
    )
