"""Conditions that a queued link checks before its script starts: whether the chain is over. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import LARGEST_DIRECTIVES, LARGEST_SCRIPT
from mirage.domain.errors import BadSpelling
from mirage.domain.failurepolicy import Recovery
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import NO_JOB
from mirage.domain.script import script_size
from mirage.provisioner.failures import KINDS
from mirage.provisioner.handover import before, in_vain
from mirage.slurm.batchscript import read_interpreter, sbatch_lines
from mirage.slurm.gate import Gate
from mirage.slurm.wrapper import gated

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import BatchScript, JobRequest
    from mirage.domain.link import Link

_LONGEST_SCRIPT = LARGEST_SCRIPT - 2 * LARGEST_DIRECTIVES
"""Bytes; Slurm must take the script with what is put around it."""


def cannot_look(batch: BatchScript) -> str:
    """Return why the script cannot have the lines of the check; empty: it can."""
    if script_size(batch) > _LONGEST_SCRIPT:
        return "its script is too long to add the check whether the work is done"
    try:
        if batch.text:  # the loop keeps chains without it
            read_interpreter(batch.text, "script")
        words = (*batch.options, *sbatch_lines(batch.text, "script").split())
    except BadSpelling as error:
        return f"its script cannot be read: {error}"
    if any(word.startswith("--container") for word in words):
        return "its container may lack squeue, which the check whether the work is done needs"
    return ""


def with_gate(request: JobRequest, record: ChainRecord, link: Link, *, bound: bool = False) -> JobRequest:
    """The request of ``link``, whose script does not run where the link before it has ended the chain.

    ``bound``: the nodes of the one before alone keep it back, no dependency.
    If that link is over already, the chain itself knows its end. A script that cannot look stays as it is.
    """
    last, batch = before(record, link), request.batch
    if batch is None or last is None or last.final or last.job_id == NO_JOB or cannot_look(batch):
        return request
    gate = replace(_gate(record, last), bound=bound)
    return replace(request, batch=replace(batch, text=gated(batch.text, gate))) if gate.lines() else request


def not_begun(record: ChainRecord, link: Link) -> bool:
    """Whether the started ``link`` ended before its script, having seen that the chain is over.

    It does not see the end of a chain whose retries or whose running time are used up: then its script runs until
    the next cycle cancels it.
    """
    if not in_vain(record, link) or link.job_state is JobState.CANCELLED:
        return False
    last, chain = record.links[record.ended_by - 1], record.chain
    if last.job_state in (JobState.COMPLETED, JobState.FAILED) and last.exit_code == chain.done.exit_code:
        return True
    kind = KINDS.get(last.job_state)
    return kind is not None and chain.failures.of(kind).recovery is Recovery.STOP


def _gate(record: ChainRecord, last: Link) -> Gate:
    chain = record.chain
    warn = chain.request.warn
    known = chain.request.limit if last.limit == ABSENT else last.limit
    return Gate(
        job=last.job_id,
        done_code=chain.done.exit_code,
        done_file=chain.done.file,
        stops=tuple(state for state, kind in KINDS.items() if chain.failures.of(kind).recovery is Recovery.STOP),
        warn_lead=warn.lead if warn else ABSENT,
        limit=known if last.warned_until == ABSENT else ABSENT,
        alone=chain.one_writer,
    )
