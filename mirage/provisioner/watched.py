"""Which files speak for a chain now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import HandoverPolicy
from mirage.domain.files import WatchedFile
from mirage.provisioner import handover

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainRecord


def done_file(chain: Chain) -> WatchedFile | None:
    """The file that ends the chain; ``None``: no file does."""
    return WatchedFile(chain.owner, chain.done.file) if chain.done.file else None


def ready_file(record: ChainRecord) -> WatchedFile | None:
    """The file by which the running successor says that it can take over; ``None``: nothing waits for that."""
    heir = handover.successor(record)
    return _ready_file(record.chain, heir.index) if heir is not None else None


def watched_files(record: ChainRecord) -> tuple[WatchedFile, ...]:
    """All that may be asked for in this cycle, whatever its snapshot shows."""
    if record.over:
        return ()
    ready = [_ready_file(record.chain, link.index) for link in record.live[1:]]
    return tuple(file for file in (done_file(record.chain), *ready) if file is not None)


def first_files(chain: Chain) -> tuple[WatchedFile, ...]:
    """Those that a new chain is going to need, by the names that can be known of it."""
    return tuple(file for file in (done_file(chain), _ready_file(chain, 1)) if file is not None)


def _ready_file(chain: Chain, index: int) -> WatchedFile | None:
    path = chain.handover_file(index)
    wanted = path and chain.handover.policy is HandoverPolicy.WHEN_READY
    return WatchedFile(chain.owner, path) if wanted else None
