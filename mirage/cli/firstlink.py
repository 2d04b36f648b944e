"""After ``mirage submit``: whether Slurm accepts the first link, as ``sbatch`` reports it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.client.errors import ClientError, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.client.client import Client
    from mirage.client.documents import Chain

PATIENCE = 30.0
"""Real seconds. A command starts a cycle, which takes a few seconds."""
_EVERY = 0.25


@dataclass(frozen=True, slots=True)
class FirstLink:
    """The state of the first link as the daemon last reported it."""

    job_id: int | None = None
    why_not: str = ""
    """The daemon's reason why there is no job yet; empty if there is one."""
    rejected: bool = False
    """Slurm will never accept it."""


def await_first_link(
    daemon: Client,
    chain: str,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> FirstLink:
    """Wait at most ``PATIENCE`` until Slurm accepts or rejects the link; cancel a chain that it rejects."""
    deadline = now() + PATIENCE
    while True:
        try:
            found = _seen(daemon.chain(chain), last=now() >= deadline)
            if found is not None and found.rejected:
                daemon.cancel(chain)
        except ClientError as error:
            gone = isinstance(error, Refusal) and error.status == 404
            if gone or now() >= deadline:
                return FirstLink(why_not=str(error))
            found = None
        if found is not None:
            return found
        sleep(_EVERY)


def _seen(chain: Chain, *, last: bool) -> FirstLink | None:
    """``None``: not decided yet."""
    for link in chain.links:
        if link.job_id is not None:
            return FirstLink(link.job_id)
    paused = chain.status == "paused"
    if chain.rejection:
        return FirstLink(why_not=f"Slurm rejects it: {chain.rejection}", rejected=paused)
    if paused or chain.over:
        return FirstLink(why_not=chain.reason)
    if last:
        return FirstLink(why_not=chain.sentence or "the daemon has not processed the chain yet")
    return None
