"""Whether binding a successor to its predecessor's nodes keeps it back: asked once for each handover."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.chain import Steering
from mirage.domain.errors import MirageError
from mirage.provisioner.gates import cannot_look
from mirage.provisioner.handover import why_loose
from mirage.slurm.jobrequest import may_spread, names_nodes

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainId, ChainRecord
    from mirage.domain.job import Job, JobId, JobRequest
    from mirage.domain.link import Link
    from mirage.ports import NodeSharing


_MOST_TOLD = 10_000
"""Chains that are remembered; with more of them all are forgotten, and asked about again."""


@dataclass(frozen=True, slots=True)
class Pins:
    """``source``: what the cluster says of its nodes; ``None``: nothing, and then no pin is trusted."""

    source: NodeSharing | None
    _told: dict[ChainId, tuple[JobId, str]] = field(default_factory=dict)

    def why_not(self, record: ChainRecord, predecessor: Link, job: Job | None, *, released: bool = False) -> str:
        """Return why the successor cannot be pinned; empty if it can be, or without the method pin.

        ``released``: links are held jobs that Mirage releases, not submissions of its own.
        """
        if record.chain.method is not Steering.PIN:
            return ""
        if unseen := _cannot_look(record.chain, record.chain.request, released=released):
            return unseen
        return why_loose(record, predecessor, job) or (self._shared(record, job) if job is not None else "")

    def unfit(self, record: ChainRecord, predecessor: Job, request: JobRequest) -> str:
        """Why the successor's ``request`` cannot be bound, by its script, which records lack; remembered.

        Empty: it can.
        """
        why = _cannot_look(record.chain, request) or _named_nodes(request)
        if not why and may_spread(request):
            why = self._asked(predecessor, spreads=True)
        if why:
            self._tell(record.chain.chain_id, predecessor.job_id, why)
        return why

    def rejected(self, record: ChainRecord, predecessor: Job, why: str) -> None:
        """Remember that Slurm takes no successor that is bound to these nodes, as ``why`` says."""
        self._tell(record.chain.chain_id, predecessor.job_id, f"Slurm rejects the pinned job: {why}")

    def _tell(self, chain_id: ChainId, job_id: JobId, why: str) -> None:
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told[chain_id] = (job_id, why)

    def _shared(self, record: ChainRecord, job: Job) -> str:
        known = self._told.get(record.chain.chain_id)
        if known is None or known[0] != job.job_id:
            request = record.chain.request
            why = _named_nodes(request) or self._asked(job, spreads=may_spread(request))
            self._tell(record.chain.chain_id, job.job_id, why)
            return why
        return known[1]

    def _asked(self, job: Job, *, spreads: bool) -> str:
        if self.source is None:
            return "this backend cannot report whether its nodes are shared"
        try:
            return self.source.why_shared(job, spreads=spreads)
        except MirageError as error:
            return f"cannot determine whether its nodes are shared: {error}"


def _cannot_look(chain: Chain, request: JobRequest, *, released: bool = False) -> str:
    """Return why a link of one writer cannot check its predecessor's state as it starts; empty: it can.

    A pin does not hold it while the predecessor is suspended, nor after that has finished the work.
    """
    batch = request.batch
    if batch is None or not chain.one_writer:
        return ""
    if released and chain.steering is Steering.AUTO:
        return "its held job cannot check whether the work is done"
    return cannot_look(batch)


def _named_nodes(request: JobRequest) -> str:
    if not names_nodes(request):
        return ""
    return "the job requests nodes by name, and Slurm keeps only one node list per job"
