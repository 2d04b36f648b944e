"""Scripts in the database, with their environments and arguments: records in memory hold digests of them.

Contents are found by their digest, so chains with the same script share one row. A row goes with the last chain
that uses it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from sqlalchemy import delete, select, union

from mirage.documentfaults import reader_of
from mirage.domain.errors import ConfigError
from mirage.domain.script import ScriptReference, StoredScript, script_digests, script_size
from mirage.slurm.plansettings import plan_settings
from mirage.store.codec import from_text, plain_values, to_text
from mirage.store.tables import chains, scripts
from mirage.store.upserts import insert_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import BatchScript, JobRequest
    from mirage.store.upserts import Row

Contents = dict[str, bytes]
"""By digest."""


@dataclass(frozen=True, slots=True)
class _Surroundings:
    environment: tuple[tuple[str, str], ...]
    arguments: tuple[str, ...]


_SURROUNDINGS = reader_of(_Surroundings)


def detach_script(record: ChainRecord) -> tuple[ChainRecord, Contents]:
    """The record with a reference in place of its script, and what the reference stands for."""
    request = record.chain.request
    batch = request.batch
    if batch is None or isinstance(batch, StoredScript) or not script_size(batch):
        return record, {}
    text, surroundings = batch.text.encode("utf-8", "surrogatepass"), _surroundings(batch)
    digests = _digest(text), _digest(surroundings)
    arguments = script_digests(batch).arguments
    reference = ScriptReference(*digests, script_size(batch), plan_settings(batch), arguments)
    request = replace(request, batch=StoredScript.of(batch, reference))
    slim = replace(record, chain=replace(record.chain, request=request))
    return slim, dict(zip(digests, (text, surroundings), strict=True))


def restore_script(request: JobRequest, read: Callable[[str], bytes], where: str) -> JobRequest:
    """The request with its script; ``read`` gives the content of a digest. Raises ``ConfigError``, as it does."""
    batch = request.batch
    if not isinstance(batch, StoredScript):
        return request
    text = read(batch.reference.text).decode("utf-8", "surrogatepass")
    around = from_text(_SURROUNDINGS, read(batch.reference.environment).decode(), where)
    return replace(request, batch=batch.restored(text, around.environment, around.arguments))


def add_contents(connection: Connection, contents: Contents) -> None:
    """Add missing contents."""
    rows: list[Row] = [{"digest": digest, "content": content} for digest, content in contents.items()]
    insert_new(connection, scripts, rows)


def read_content(connection: Connection, digest: str, where: str) -> bytes:
    """What a digest stands for. Raises ``ConfigError`` where it is not there, or is something else."""
    content = connection.execute(select(scripts.c.content).where(scripts.c.digest == digest)).scalar()
    if content is None:
        raise ConfigError(where, f"script {digest[:12]} is missing; restore a backup")
    if not isinstance(content, bytes) or _digest(content) != digest:
        raise ConfigError(where, f"script {digest[:12]} is damaged; restore a backup")
    return content


def delete_unused(connection: Connection) -> None:
    """Delete what no chain uses."""
    used = union(select(chains.c.script), select(chains.c.environment))
    connection.execute(delete(scripts).where(scripts.c.digest.not_in(used)))


def _surroundings(batch: BatchScript) -> bytes:
    around = _Surroundings(batch.environment, batch.arguments)
    return to_text(plain_values(_SURROUNDINGS, around)).encode("ascii")


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
