"""Account, QOS and generic resources of jobs that have started."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """From scripts apart. Of the jobs that are there already they are not known."""
    for name in ("account", "qos", "gres"):
        op.add_column("waits", sa.Column(name, sa.Text()))
    op.add_column("waits", sa.Column("gres_per_node", sa.BigInteger()))
    op.create_index("ix_waits_partition_start", "waits", ["partition", "start"])
    op.create_index("ix_waits_partition_gres_qos_start", "waits", ["partition", "gres", "qos", "start"])
