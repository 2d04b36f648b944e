"""A chain's job request and done condition, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.domain.script import script_digests
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord, DoneCondition


class RequestDocument(Described):
    """Job request of each link; script and arguments are shown as digests only."""

    job_name: str
    """Name of the jobs."""
    partition: str
    """Partition; empty: the cluster's default."""
    account: str
    """Account; empty: the owner's default."""
    qos: str
    """QOS; empty: the default."""
    nodes: int
    """Number of nodes."""
    limit: int
    """Time limit of each link, in seconds."""
    gres_per_node: dict[str, int]
    """Generic resources by name, such as ``gpu:a100``."""
    options: list[str]
    """Further sbatch options, as given."""
    directory: str
    """Working directory."""
    script: str
    """SHA-256 of the script; empty: no script."""
    arguments: str
    """SHA-256 over the script's arguments, each preceded by its length in bytes and a colon; empty: unknown."""


class DoneDocument(Described):
    """Conditions that end a chain as done; the first to hold counts."""

    exit_code: int | None
    """Exit code of a link that ends the chain; ``null``: none."""
    file: str
    """File whose existence ends the chain; empty: none."""
    links: int
    """Number of links after which the chain is done; 0: no bound."""
    total_time: int
    """Total run time of all links, in seconds, after which the chain is done; 0: no bound."""
    words: str
    """The conditions in words."""


def done_document(done: DoneCondition) -> DoneDocument:
    """Return the done condition as fields and in words."""
    words = [
        f"{done.links} {'link has' if done.links == 1 else 'links have'} run" if done.links else "",
        f"links have run for {spell(done.total_time)} in all" if done.total_time else "",
        "" if done.exit_code is None else f"a link ends with exit code {done.exit_code}",
        f"{done.file} exists" if done.file else "",
    ]
    said = ", or ".join(filter(None, words)) or "only when cancelled"
    return DoneDocument(
        exit_code=done.exit_code, file=done.file, links=done.links, total_time=done.total_time, words=said
    )


def request_document(record: ChainRecord) -> RequestDocument:
    """Return the request without script and arguments, which are shown as digests."""
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
