"""Facts about the database itself."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """From account, QOS and generic resources of waits."""
    op.create_table(
        "about",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("name", "value")),
        sa.PrimaryKeyConstraint("name", name="pk_about"),
    )
