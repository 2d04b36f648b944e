"""Whether the loop waits long enough before it takes a submission for lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.daemon.doctor.finding import ok, warn

if TYPE_CHECKING:
    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding

_UNDER_WAY = 15
"""Seconds until an agent or helper begins a request (at most ten), plus a margin for the reply."""
_SBATCH = 30
"""Timeout of ``sbatch`` in agents and helpers, s."""


def look_at_settle(config: Config) -> Finding:
    """Check that ``settle`` exceeds the sum of the timeouts of a submission."""
    settle, needed = config.loop.settle, _UNDER_WAY + max(_SBATCH, config.cluster.timeout)
    found = f"loop.settle = {settle} s; a submission may take up to {needed} s"
    if settle > needed:
        return ok("settle", found, "a link is never submitted again while its first submission is in progress")
    follows = "a link whose reply is late may be submitted twice"
    return warn("settle", found, follows, f"set loop.settle above {needed} s")
