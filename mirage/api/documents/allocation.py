"""What occupies which place: lanes (nodes) with pieces (links) on them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from pydantic import BaseModel

from mirage.api.documents.chains import instant
from mirage.domain.chain import NO_JOB
from mirage.domain.errors import BadSpelling
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord, Link


class PieceDocument(BaseModel):
    """What occupied a lane for a while."""

    label: str
    chain: str
    link: int
    job_id: int | None
    state: str
    start: str | None
    end: str | None
    """Running: when its limit ends it."""


class LaneDocument(BaseModel):
    """A place, and what was there in order of time."""

    name: str
    kind: str
    """``node``."""
    pieces: list[PieceDocument]


class AllocationDocument(BaseModel):
    """The nodes of the links that Slurm still shows, running ones and those that ended lately."""

    time: str | None
    stale_since: str | None
    lanes: list[LaneDocument]


def allocation_document(records: Iterable[ChainRecord], status: Status) -> AllocationDocument:
    """Where the links of ``records`` run, as far as the last look at the cluster tells."""
    lanes: dict[str, list[PieceDocument]] = defaultdict(list)
    for record in records:
        for link in record.links:
            for node in _nodes(record, link, status):
                lanes[node].append(_piece(record, link))
    return AllocationDocument(
        time=instant(status.time),
        stale_since=instant(status.stale_since),
        lanes=[LaneDocument(name=node, kind="node", pieces=lanes[node]) for node in sorted(lanes)],
    )


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
