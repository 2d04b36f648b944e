"""Which files speak for a chain now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import HandoverPolicy
from mirage.domain.files import WatchedFile
from mirage.provisioner import handover
from mirage.provisioner.failures import failed_last, job_failed_at_once

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.snapshot import Snapshot


def done_file(chain: Chain) -> WatchedFile | None:
    """The file that ends the chain; ``None``: no file does."""
    return WatchedFile(chain.owner, chain.done.file) if chain.done.file else None


def ready_file(record: ChainRecord) -> WatchedFile | None:
    """The file by which the running successor says that it can take over; ``None``: nothing waits for that."""
    heir = handover.successor(record)
    return _ready_file(record.chain, heir.index) if heir is not None else None


def ready_file_of_last(record: ChainRecord) -> WatchedFile | None:
    """The file by which the last link that runs says that it is ready; ``None``: links of this chain do not."""
    running = [link for link in record.links if link.running]
    return _ready_file(record.chain, running[-1].index) if running else None


def watched_files(record: ChainRecord) -> tuple[WatchedFile, ...]:
    """All that may be asked for in this cycle, whatever its snapshot shows."""
    if record.over:
        return ()
    ready = [_ready_file(record.chain, link.index) for link in record.live]
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


def _ready_file(chain: Chain, index: int) -> WatchedFile | None:
    path = chain.handover_file(index)
    wanted = path and chain.handover.policy is HandoverPolicy.WHEN_READY
    return WatchedFile(chain.owner, path) if wanted else None
