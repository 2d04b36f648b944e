"""Files that speak for a chain, and the check of a queued link whether the chain is over. Pure.

The link checks that before its script starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import LARGEST_DIRECTIVES, LARGEST_SCRIPT
from mirage.domain.chain import HandoverPolicy
from mirage.domain.errors import BadSpelling
from mirage.domain.failurepolicy import FailureAction
from mirage.domain.files import WatchedFile
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import NO_JOB
from mirage.domain.script import script_size
from mirage.provisioner import handover
from mirage.provisioner.failures import KINDS, failed_last, job_failed_at_once
from mirage.provisioner.handover import before, in_vain
from mirage.slurm.batchscript import read_interpreter, sbatch_lines
from mirage.slurm.wrapper import Gate, gated

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import BatchScript, JobRequest, Seconds
    from mirage.domain.link import Link
    from mirage.domain.snapshot import Snapshot


def done_file(chain: Chain) -> WatchedFile | None:
    """The file that ends the chain; ``None``: no file does."""
    return WatchedFile(chain.owner, chain.done.file) if chain.done.file else None


def ready_file(record: ChainRecord) -> WatchedFile | None:
    """The file by which the running successor says that it can take over; ``None``: nothing waits for that."""
    heir = handover.successor(record)
    return _ready_file_of(record, heir) if heir is not None else None


def may_be_stale(record: ChainRecord, now: Seconds) -> bool:
    """Whether the file that says that the successor is ready may be of an earlier run of its job.

    The wrapper of a job that was requeued removes it as the job starts again.
    """
    heir = handover.successor(record)
    if heir is None or _first_of_job(record, heir) is heir:
        return False
    return heir.start == ABSENT or now - heir.start < _PROLOG


def _first_of_job(record: ChainRecord, link: Link) -> Link:
    """The first link with the same job: its index is in the job's environment, which a requeue keeps."""
    same = (each for each in record.links if each.job_id == link.job_id != NO_JOB)
    return next(same, link)


def _ready_file_of(record: ChainRecord, link: Link) -> WatchedFile | None:
    return _ready_file(record.chain, _first_of_job(record, link).index)


def ready_file_of_last(record: ChainRecord) -> WatchedFile | None:
    """The file by which the last link that runs says that it is ready; ``None``: links of this chain do not."""
    running = [link for link in record.links if link.running]
    return _ready_file_of(record, running[-1]) if running else None


def watched_files(record: ChainRecord) -> tuple[WatchedFile, ...]:
    """All that may be asked for in this cycle, whatever its snapshot shows."""
    if record.over:
        return ()
    ready = [_ready_file_of(record, link) for link in record.live]
    return tuple(file for file in (done_file(record.chain), *ready) if file is not None)


def ended_by_now(record: ChainRecord, snapshot: Snapshot) -> tuple[WatchedFile, ...]:
    """The file that the chain's link may have written at last, where the snapshot shows that it has ended."""
    file = done_file(record.chain)
    if file is None or record.over:
        return ()
    jobs = ((link, snapshot.link(link.tag, record.chain.owner)) for link in record.live)
    ended = any(link.running if job is None else job.state.finished for link, job in jobs)
    return (file,) if ended else ()


def suspect_directory(record: ChainRecord, snapshot: Snapshot) -> WatchedFile | None:
    """The directory in which links run, where one fails right at its start; ``None``: no reason to check it.

    Slurm accepts a job whose directory is gone, and its output cannot be opened then.
    """
    chain = record.chain
    if record.over or chain.request.batch is None or not chain.request.batch.directory:
        return None
    jobs = (snapshot.link(link.tag, chain.owner) for link in record.live)
    failing = failed_last(record) or any(job is not None and job_failed_at_once(job) for job in jobs)
    return WatchedFile(chain.owner, chain.request.batch.directory) if failing else None


def first_files(chain: Chain) -> tuple[WatchedFile, ...]:
    """Files that a new chain is going to need, as far as their names are known."""
    return tuple(file for file in (done_file(chain), _ready_file(chain, 1)) if file is not None)


_PROLOG = 60
"""Seconds from the start of a job to that of its script, at most."""


def _ready_file(chain: Chain, index: int) -> WatchedFile | None:
    path = chain.handover_file(index)
    wanted = path and chain.handover.policy is HandoverPolicy.WHEN_READY
    return WatchedFile(chain.owner, path) if wanted else None


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

    Nor does it where its node lacks the working directory.

    ``bound``: the nodes of the one before alone keep it back, no dependency.
    If that link is over already, the chain itself knows its end. A script that cannot look stays as it is.
    """
    last, batch = before(record, link), request.batch
    if batch is None or last is None or cannot_look(batch):
        return request
    over = last.final or last.job_id == NO_JOB
    gate = Gate(NO_JOB, record.chain.done.exit_code) if over else replace(_gate(record, last), bound=bound)
    gate = replace(gate, directory=batch.directory)
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
    return kind is not None and chain.failures.of(kind).recovery is FailureAction.STOP


def _gate(record: ChainRecord, last: Link) -> Gate:
    chain = record.chain
    warn = chain.request.warn
    known = chain.request.limit if last.limit == ABSENT else last.limit
    return Gate(
        job=last.job_id,
        done_code=chain.done.exit_code,
        done_file=chain.done.file,
        stops=tuple(
            state for state, kind in KINDS.items() if chain.failures.of(kind).recovery is FailureAction.STOP
        ),
        warn_lead=warn.lead if warn else ABSENT,
        limit=known if last.warned_until == ABSENT else ABSENT,
        alone=chain.one_writer,
    )
