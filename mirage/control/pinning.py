"""Whether binding a successor to its predecessor's nodes keeps it back: asked once for each hand-over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.chain import Steering
from mirage.domain.errors import MirageError
from mirage.provisioner.handover import why_loose
from mirage.slurm.jobrequest import names_nodes

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainId, ChainRecord, Link
    from mirage.domain.job import Job, JobId
    from mirage.ports import NodeSharing


_MOST_TOLD = 10_000
"""Chains that are remembered; with more of them all are forgotten, and asked about anew."""


@dataclass(frozen=True, slots=True)
class Pins:
    """``source``: what the cluster says of its nodes; ``None``: nothing, and then no pin is trusted."""

    source: NodeSharing | None
    _told: dict[ChainId, tuple[JobId, str]] = field(default_factory=dict)

    def why_not(self, record: ChainRecord, predecessor: Link, job: Job | None) -> str:
        """Why a pin would not keep the successor back; empty where it does, and without steering by pin."""
        if record.chain.steering is not Steering.PIN:
            return ""
        return why_loose(record, predecessor, job) or (self._shared(record, job) if job is not None else "")

    def _shared(self, record: ChainRecord, job: Job) -> str:
        known = self._told.get(record.chain.chain_id)
        if known is None or known[0] != job.job_id:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            known = (job.job_id, _named_nodes(record.chain) or self._asked(job))
            self._told[record.chain.chain_id] = known
        return known[1]

    def _asked(self, job: Job) -> str:
        if self.source is None:
            return "whether its nodes are shared cannot be asked here"
        try:
            return self.source.why_shared(job)
        except MirageError as error:
            return f"whether its nodes are shared is not known: {error}"


def _named_nodes(chain: Chain) -> str:
    if not names_nodes(chain.request):
        return ""
    return "the job asks for nodes by name, and Slurm keeps one list of nodes for a job"
