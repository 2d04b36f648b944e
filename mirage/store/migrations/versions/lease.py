"""Who of several daemons leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """From tokens and answers."""
    op.create_table(
        "leases",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("office", "holder", "name")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("term", "beat")),
        sa.PrimaryKeyConstraint("office", name="pk_leases"),
    )
