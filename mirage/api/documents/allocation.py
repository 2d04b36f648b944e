"""Allocation of nodes: lanes (nodes) with bars (links) on them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant
from mirage.api.documents.tasks import TasksDocument  # noqa: TC001 (pydantic reads it)
from mirage.domain.errors import BadSpelling
from mirage.domain.link import NO_JOB
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord
    from mirage.domain.link import Link


class PieceDocument(Described):
    """A bar: one link on one node, from start to end."""

    label: str
    """Text on the bar: chain name and link number."""
    chain: str
    """Chain ID."""
    link: int
    """Number of the link in its chain, from 1."""
    job_id: int | None
    """Slurm's job ID; ``null``: unknown."""
    state: str
    """running, ended or lost."""
    start: str | None
    """Start time."""
    end: str | None
    """End time; of a running link: end of its time limit."""


class LaneDocument(Described):
    """A node and its bars."""

    name: str
    """Node name."""
    kind: str
    """Always ``node``."""
    pieces: list[PieceDocument]
    """Oldest first."""


class AllocationDocument(Described):
    """The nodes of links that Slurm still reports: running and recently ended ones."""

    time: str | None
    """Time of the last cycle."""
    stale_since: str | None
    """Time of the last answer of the cluster; ``null``: it answers now."""
    lanes: list[LaneDocument]
    """Nodes, sorted by name."""
    tasks: list[TasksDocument]
    """Tasks of chains with a running link and a task state directory."""


def places_document(records: Sequence[ChainRecord], status: Status) -> bytes:
    """Return the nodes of the links of ``records`` by the last snapshot, as JSON without tasks."""
    lanes: dict[str, list[PieceDocument]] = defaultdict(list)
    for record in records:
        for link in record.links:
            for node in _nodes(record, link, status):
                lanes[node].append(_piece(record, link))
    document = AllocationDocument(
        time=instant(status.time),
        stale_since=instant(status.stale_since),
        lanes=[LaneDocument(name=node, kind="node", pieces=lanes[node]) for node in sorted(lanes)],
        tasks=[],
    )
    return document.model_dump_json(exclude={"tasks"}).encode()


def joined(places: bytes, tasks: Iterable[bytes]) -> bytes:
    """Join a ``places_document`` and some ``TasksDocument`` into an ``AllocationDocument``."""
    return b'%s,"tasks":[%s]}' % (places.removesuffix(b"}"), b",".join(tasks))


def _nodes(record: ChainRecord, link: Link, status: Status) -> list[str]:
    job = status.snapshot.link(link.tag, record.chain.owner)
    if job is None or not link.started or not job.node_list:
        return []
    try:
        return expand(job.node_list)
    except BadSpelling:
        return [job.node_list]  # shown as Slurm wrote it


def _piece(record: ChainRecord, link: Link) -> PieceDocument:
    return PieceDocument(
        label=f"{record.chain.name} {link.index}",
        chain=record.chain.chain_id,
        link=link.index,
        job_id=link.job_id if link.job_id != NO_JOB else None,
        state=link.state,
        start=instant(link.start),
        end=instant(link.end),
    )
