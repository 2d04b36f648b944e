"""Whether the loop waits long enough before it takes a submission for lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.daemon.doctor.finding import ok, warn

if TYPE_CHECKING:
    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding

_UNDER_WAY = 15
"""Seconds until an order is begun by an agent or helper (ten at most), and some for the answer to be seen."""
_SBATCH = 30
"""Seconds after which agents and helpers give up ``sbatch``."""


def look_at_settle(config: Config) -> Finding:
    """A submission may be in progress for as long as all who carry it are patient: ``settle`` must be longer."""
    settle, needed = config.loop.settle, _UNDER_WAY + max(_SBATCH, config.cluster.timeout)
    found = f"loop.settle = {settle} s, a submission may be in progress for {needed} s"
    if settle > needed:
        return ok("settle", found, "a link is never sent a second time while the first is still on its way")
    follows = "a link whose answer is late may be submitted twice"
    return warn("settle", found, follows, f"set loop.settle above {needed} s")
