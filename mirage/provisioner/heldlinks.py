"""Held links: jobs that an owner has submitted in advance for the daemon to release. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import Steering
from mirage.domain.link import NO_JOB
from mirage.provisioner.handover import end_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import Dependency, JobId
    from mirage.domain.tags import HeldJobs

_FEW = 1
"""Held links left at which the owner is asked for more: the last one has not started then."""

MOST_AWAITED = 8
"""Number of jobs that a held link of one writer waits for; that many may be cancelled one after the other."""


def awaited(
    chain: Chain, jobs: Mapping[int, JobId], index: int, over: Collection[JobId] = ()
) -> tuple[Dependency, ...]:
    """The jobs before link ``index`` that must end before it may start, whichever user releases it.

    ``over``: those of links that have ended, which Slurm may not know any more. After one of the others that has
    done the work the link never starts.

    Links are released in ascending order. It is not the one before alone, which may be cancelled while those
    before that still wait or run. Mirage states others in their place as it releases the link.
    """
    earlier = [jobs[other] for other in sorted(jobs) if other < index and jobs[other] != NO_JOB]
    return tuple(end_of(chain, job_id, over=job_id in over) for job_id in earlier[-MOST_AWAITED:])


def held_indices(chain: Chain, stock: HeldJobs) -> tuple[int, ...]:
    """Return the indices of the chain's held links, ascending."""
    numbers = (job.tag.rpartition(":")[2] for job in stock.of(chain))
    return tuple(sorted({int(number) for number in numbers if number.isascii() and number.isdecimal()}))


def why_unbound(record: ChainRecord, stock: HeldJobs | None) -> str:
    """Why the next held link cannot be bound to its predecessor's nodes: its owner names nodes; empty: it can."""
    if stock is None or record.chain.method is not Steering.PIN:
        return ""
    job = stock.find(record.chain.tag(record.next_index), record.chain.owner)
    named = job is not None and job.node_list not in ("", record.chain.request.node_list)
    return "its held job requests nodes by name, and Slurm keeps only one node list per job" if named else ""


def shortage(record: ChainRecord, stock: HeldJobs | None) -> str:
    """Return what the owner has to do where the held links run out before the chain is done; empty: nothing.

    ``stock``: all held links, or ``None`` where links are submitted instead of released.
    """
    if stock is None or record.over:
        return ""
    left = _left(record, stock)
    if left > _FEW or _suffice(record, left):
        return ""
    last = record.next_index + left - 1
    how = f"`mirage submit --held-links N --chain {record.chain.chain_id}` with the same options and script"
    if later := [index for index in held_indices(record.chain, stock) if index > last]:
        missing = f"the held job of link {last + 1} is missing"
        return f"{missing}, so link {later[0]} stays held; add link {last + 1}: {how}"
    if left:
        return f"link {last} is the last held link; add more before it starts: {how}"
    return f"no held link is left after link {last}; add more: {how}" if last else f"no held link; add some: {how}"


def has_next(record: ChainRecord, stock: HeldJobs | None) -> bool:
    """Whether the next link can reach the queue: its held job is there, or none is needed."""
    return stock is None or _left(record, stock) > 0


def _left(record: ChainRecord, stock: HeldJobs) -> int:
    """Held links that can follow without one missing between them."""
    held, index = set(held_indices(record.chain, stock)), record.next_index
    while index in held:
        index += 1
    return index - record.next_index


def _suffice(record: ChainRecord, left: int) -> bool:
    """Whether ``more`` further links complete the chain, each of them taken to its time limit."""
    done, further = record.chain.done, left + (record.waiting is not None)
    ran = [link for link in record.links if link.worked]
    if done.links and len(ran) + further >= done.links:
        return True
    seconds = sum(link.end - link.start for link in ran) + further * record.chain.request.limit
    return bool(done.total_time) and seconds >= done.total_time
