"""The jobs of all users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_LONG = ("eligible", "start", "end", "limit", "memory_mb")
_SHORT = ("nodes", "cpus", "state")
_TEXTS = ("user", "account", "partition", "qos", "name", "constraint", "gres")


def upgrade() -> None:
    """From the first tables."""
    op.create_table(
        "jobs",
        *(sa.Column(name, sa.BigInteger(), nullable=False, autoincrement=False) for name in ("job_id", "submit")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _LONG),
        *(sa.Column(name, sa.Integer(), nullable=False) for name in _SHORT),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _TEXTS),
        sa.PrimaryKeyConstraint("job_id", "submit", name="pk_jobs"),
    )
    op.create_index("ix_jobs_submit", "jobs", ["submit"])
