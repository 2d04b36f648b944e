"""What a chain asks for, as JSON: of Slurm for each link, and when its work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.domain.script import script_digests
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord, DoneCondition


class RequestDocument(Described):
    """What each link asks of Slurm; of the script and its arguments only digests are shown."""

    job_name: str
    """What its jobs are called."""
    partition: str
    """Empty: the cluster's default one."""
    account: str
    """Empty: the owner's default one."""
    qos: str
    """Empty: the default one."""
    nodes: int
    """How many."""
    limit: int
    """Time limit, seconds."""
    gres_per_node: dict[str, int]
    """Generic resources by name, such as ``gpu:a100``."""
    options: list[str]
    """Further options of sbatch, as they were given."""
    directory: str
    """In which it runs."""
    script: str
    """SHA-256 of the script's text; empty: it has none."""
    arguments: str
    """SHA-256 of each of the script's arguments after its length in bytes and a colon; empty: not known."""


class DoneDocument(Described):
    """When a chain has done its work; whichever holds first."""

    exit_code: int | None
    """A link that completes with this code ends the chain; ``null``: none does."""
    file: str
    """The chain is done when this file exists; empty: none is named."""
    links: int
    """The chain is done once this number of links have run; 0: no such bound."""
    total_time: int
    """Seconds that all links together have run; 0: no such bound."""
    words: str
    """The same in words."""


def done_document(done: DoneCondition) -> DoneDocument:
    """For programs, and in words."""
    words = [
        f"{done.links} {'link has' if done.links == 1 else 'links have'} run" if done.links else "",
        f"links have run for {spell(done.total_time)} in all" if done.total_time else "",
        "" if done.exit_code is None else f"a link ends with exit code {done.exit_code}",
        f"{done.file} exists" if done.file else "",
    ]
    said = ", or ".join(filter(None, words)) or "it is cancelled"
    return DoneDocument(
        exit_code=done.exit_code, file=done.file, links=done.links, total_time=done.total_time, words=said
    )


def request_document(record: ChainRecord) -> RequestDocument:
    """Without the script and its arguments, of which digests are told."""
    request = record.chain.request
    batch = request.batch
    digests = script_digests(batch) if batch else None
    return RequestDocument(
        job_name=request.name,
        partition=request.partition,
        account=request.account,
        qos=request.qos,
        nodes=request.nodes,
        limit=request.limit,
        gres_per_node=dict(request.gres_per_node),
        options=list(batch.options) if batch else [],
        directory=batch.directory if batch else "",
        script=digests.text if digests else "",
        arguments=digests.arguments if digests else "",
    )
