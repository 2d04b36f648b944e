"""What occupies which place: lanes (nodes) with pieces (links) on them."""

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
    """What occupied a lane for a while."""

    label: str
    """What to write on it: the chain and the number of its link."""
    chain: str
    """The chain's id."""
    link: int
    """Its number in the chain, from 1."""
    job_id: int | None
    """Slurm's number; ``null``: not known."""
    state: str
    """running, ended or lost."""
    start: str | None
    """When it began to occupy the lane."""
    end: str | None
    """Running: when its limit ends it."""


class LaneDocument(Described):
    """A place, and what was there in order of time."""

    name: str
    """Of the node."""
    kind: str
    """``node``."""
    pieces: list[PieceDocument]
    """Oldest first."""


class AllocationDocument(Described):
    """The nodes of the links that Slurm still shows, running ones and those that ended recently."""

    time: str | None
    """Of the last cycle."""
    stale_since: str | None
    """When the cluster last answered, where it does not answer now."""
    lanes: list[LaneDocument]
    """By name."""
    tasks: list[TasksDocument]
    """Of the chains that run tasks within a running link and say where their state is."""


def places_document(records: Sequence[ChainRecord], status: Status) -> bytes:
    """Where the links of ``records`` run, as the last look at the cluster tells: all but the tasks."""
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
    """An ``AllocationDocument`` of a ``places_document`` and some ``TasksDocument``."""
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
