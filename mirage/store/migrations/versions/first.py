"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """From nothing."""
    _chains()
    _outcomes()
    _journal()
    _audit()
    _observations()


def _chains() -> None:
    op.create_table(
        "chains",
        sa.Column("sequence", _COUNTER, nullable=False, autoincrement=True),
        _text("chain_id"),
        _text("name"),
        _text("owner"),
        _text("status"),
        _text("reason"),
        _text("definition"),
        _text("progress"),
        sa.PrimaryKeyConstraint("sequence", name="pk_chains"),
        sa.UniqueConstraint("chain_id", name="uq_chains_chain_id"),
    )
    _index("chains", "owner")
    op.create_table(
        "links",
        _text("chain_id"),
        sa.Column("index", sa.Integer(), nullable=False),
        _text("state"),
        *_numbers("job_id", "planned", "submit", "start", "end"),
        _text("document"),
        sa.PrimaryKeyConstraint("chain_id", "index", name="pk_links"),
        sa.ForeignKeyConstraint(["chain_id"], ["chains.chain_id"], name="fk_links_chain_id", ondelete="CASCADE"),
    )
    _index("links", "job_id")


def _outcomes() -> None:
    op.create_table(
        "outcomes",
        _text("chain_id"),
        sa.Column("predecessor", sa.Integer(), nullable=False),
        sa.Column("successor", sa.Integer(), nullable=False),
        *_numbers("predecessor_end", "successor_start", "interruption", "overlap"),
        sa.PrimaryKeyConstraint("chain_id", "predecessor", name="pk_outcomes"),
    )
    _index("outcomes", "successor_start")


def _journal() -> None:
    op.create_table(
        "journal",
        sa.Column("id", _COUNTER, nullable=False, autoincrement=True),
        *_numbers("time"),
        sa.Column("chain_id", sa.Text()),
        sa.Column("link", sa.Integer(), nullable=False),
        _text("kind"),
        _text("text"),
        sa.Column("details", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_journal"),
    )
    _index("journal", "chain_id", "id")
    _index("journal", "kind", "id")
    _index("journal", "time")


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _COUNTER, nullable=False, autoincrement=True),
        *_numbers("time"),
        _text("user"),
        *_numbers("uid"),
        _text("action"),
        sa.Column("chain_id", sa.Text()),
        _text("result"),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    _index("audit", "chain_id", "id")
    _index("audit", "time")


def _observations() -> None:
    op.create_table(
        "snapshots",
        *_numbers("time", autoincrement=False),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("time", name="pk_snapshots"),
    )
    op.create_table(
        "waits",
        *_numbers("job_id", "submit", autoincrement=False),
        *_numbers("start", "nodes", "limit"),
        _text("partition"),
        sa.PrimaryKeyConstraint("job_id", "submit", name="pk_waits"),
    )
    _index("waits", "start", "job_id", "submit")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _numbers(*names: str, **options: Any) -> tuple[sa.Column[int], ...]:
    return tuple(sa.Column(name, sa.BigInteger(), nullable=False, **options) for name in names)


def _index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, list(columns))
