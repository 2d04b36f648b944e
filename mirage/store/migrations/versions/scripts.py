"""Scripts and environments apart from the chains."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

from mirage.documentreading import parse_json

if TYPE_CHECKING:
    from sqlalchemy import Connection

revision = "0005"
down_revision = "0004"

_CHAINS = sa.table("chains", *map(sa.column, ("chain_id", "definition", "script", "environment")))
_SCRIPTS = sa.table("scripts", sa.column("digest", sa.Text), sa.column("content", sa.LargeBinary))


def upgrade() -> None:
    """From who leads."""
    op.create_table(
        "scripts",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_scripts"),
    )
    for name in ("script", "environment"):
        op.add_column("chains", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    connection = op.get_bind()
    for chain_id in connection.execute(sa.select(_CHAINS.c.chain_id)).scalars().all():
        _detach(connection, chain_id)  # one by one: together they may not fit into memory


def _detach(connection: Connection, chain_id: str) -> None:
    this = _CHAINS.c.chain_id == chain_id
    try:
        text = connection.execute(sa.select(_CHAINS.c.definition).where(this)).scalar_one()
        chain = parse_json(text, most=None)
        batch = chain["request"]["batch"]
        if batch is None or not (batch["text"] or batch["environment"] or batch["arguments"]):
            return
        chain["stored_script"] = reference = _moved(connection, batch)
    except (ValueError, TypeError, KeyError):
        return  # a damaged document is named where it is read
    values = {"definition": json.dumps(chain, separators=(",", ":"))}
    values |= {name: reference[key] for name, key in (("script", "text"), ("environment", "environment"))}
    connection.execute(sa.update(_CHAINS).where(this).values(values))


def _moved(connection: Connection, batch: dict[str, Any]) -> dict[str, Any]:
    """Takes the script out of ``batch``; where it is now."""
    around = {name: batch[name] for name in ("environment", "arguments")}
    texts = [batch["text"], *(part for pair in batch["environment"] for part in pair), *batch["arguments"]]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    text = batch["text"].encode("utf-8", "surrogatepass")
    digests = [_added(connection, each) for each in (text, json.dumps(around, separators=(",", ":")).encode())]
    batch |= {"text": "", "environment": [], "arguments": []}
    # What sbatch reads of a script is not worked out here: equal scripts are equal to it.
    return {"text": digests[0], "environment": digests[1], "size": size, "plan_settings": digests[0]}


def _added(connection: Connection, content: bytes) -> str:
    digest = sha256(content).hexdigest()
    if connection.execute(sa.select(_SCRIPTS.c.digest).where(_SCRIPTS.c.digest == digest)).first() is None:
        connection.execute(sa.insert(_SCRIPTS).values(digest=digest, content=content))
    return digest
