"""How long successors would have waited, submitted at their predecessors' ends."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """From whose a user's name is. Of the handovers that are there already it is not known."""
    for level in ("p10", "p50", "p90"):
        op.add_column("outcomes", sa.Column(f"alternative_{level}", sa.BigInteger()))
