"""When the jobs whose waits are kept became eligible."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """From facts about the database. Of jobs that the archive has it is known already."""
    op.add_column("waits", sa.Column("eligible", sa.BigInteger()))
    waits, jobs = (sa.table(name, *map(sa.column, ("job_id", "submit", "eligible"))) for name in ("waits", "jobs"))
    same = sa.and_(jobs.c.job_id == waits.c.job_id, jobs.c.submit == waits.c.submit, jobs.c.eligible > 0)
    op.execute(waits.update().values(eligible=sa.select(jobs.c.eligible).where(same).scalar_subquery()))
