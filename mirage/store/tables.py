"""The tables. Documents are JSON texts and hold the whole value; the columns next to them are what people ask for.

A document absorbs new fields of the domain without a change here; the columns repeat a few of its fields because
they are searched, sorted or read with plain SQL. Code that reads a value back reads the document only.

Scripts, and environments with arguments, are large and needed for submissions alone: ``scripts`` holds them by
their SHA-256, so that the chains fit into memory whatever users store.

An intent has no separate table: it is a link in state ``planned``. Intent and submission are two states of one
link under one tag, and a second table would have to be kept in step with it through every crash. Nor have
decisions: they are entries of the journal, which carry their predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

Row = dict[str, Any]


def upsert(connection: Connection, table: Table, rows: Sequence[Row], key: Sequence[str]) -> None:
    """Add rows; one whose ``key`` is there already replaces the values of the other columns given."""
    if not rows:
        return
    statement = _insert(connection, table)
    values = {name: statement.excluded[name] for name in rows[0] if name not in key}
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=values), rows)


def insert_new(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Add the rows whose key is not there yet."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)


def _insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)

# SQLite counts up only a key of exactly this type.
_Counter = BigInteger().with_variant(Integer, "sqlite")


def _chain_key() -> Column[str]:
    key = ForeignKey("chains.chain_id", ondelete="CASCADE")
    return Column("chain_id", Text, key, primary_key=True)


chains = Table(
    "chains",
    metadata,
    Column("sequence", _Counter, primary_key=True, autoincrement=True),
    Column("chain_id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("progress", Text, nullable=False),
    Column("script", Text, nullable=False, server_default=""),
    Column("environment", Text, nullable=False, server_default=""),
    Index(None, "owner"),
)

scripts = Table(
    "scripts",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

links = Table(
    "links",
    metadata,
    _chain_key(),
    Column("index", Integer, primary_key=True),
    Column("state", Text, nullable=False),
    Column("job_id", BigInteger, nullable=False),
    Column("planned", BigInteger, nullable=False),
    Column("submit", BigInteger, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Index(None, "job_id"),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("chain_id", Text, primary_key=True),
    Column("predecessor", Integer, primary_key=True),
    Column("successor", Integer, nullable=False),
    Column("predecessor_end", BigInteger, nullable=False),
    Column("successor_start", BigInteger, nullable=False),
    Column("interruption", BigInteger, nullable=False),
    Column("overlap", BigInteger, nullable=False),
    *(Column(f"alternative_{level}", BigInteger) for level in ("p10", "p50", "p90")),
    Index(None, "successor_start"),
)

journal = Table(
    "journal",
    metadata,
    Column("id", _Counter, primary_key=True, autoincrement=True),
    Column("time", BigInteger, nullable=False),
    Column("chain_id", Text),
    Column("link", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("details", Text),
    Index(None, "chain_id", "id"),
    Index(None, "kind", "id"),
    Index(None, "time"),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("time", BigInteger, primary_key=True, autoincrement=False),
    Column("pending", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("document", LargeBinary, nullable=False),
)

waits = Table(
    "waits",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("submit", BigInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, nullable=False),
    Column("nodes", BigInteger, nullable=False),
    Column("limit", BigInteger, nullable=False),
    Column("partition", Text, nullable=False),
    Column("account", Text),
    Column("qos", Text),
    Column("gres", Text),
    Column("gres_per_node", BigInteger),
    Column("eligible", BigInteger),
    Index(None, "start", "job_id", "submit"),
    Index(None, "partition", "start"),
    Index(None, "partition", "gres", "qos", "start"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("submit", BigInteger, primary_key=True, autoincrement=False),
    Column("eligible", BigInteger, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger, nullable=False),
    Column("limit", BigInteger, nullable=False),
    Column("memory_mb", BigInteger, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("cpus", Integer, nullable=False),
    Column("state", Integer, nullable=False),
    Column("user", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("qos", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("constraint", Text, nullable=False),
    Column("gres", Text, nullable=False),
    Index(None, "submit"),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _Counter, primary_key=True, autoincrement=True),
    Column("time", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("uid", BigInteger, nullable=False),
    Column("action", Text, nullable=False),
    Column("chain_id", Text),
    Column("result", Text, nullable=False),
    Column("how", Text, nullable=False, server_default=""),
    Index(None, "chain_id", "id"),
    Index(None, "time"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("used", BigInteger, nullable=False),
)

holders = Table(
    "holders",
    metadata,
    Column("name", Text, primary_key=True),
    Column("uid", BigInteger, nullable=False),
)

answers = Table(
    "answers",
    metadata,
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("headers", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index(None, "time"),
)

leases = Table(
    "leases",
    metadata,
    Column("office", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
)

about = Table(
    "about",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
