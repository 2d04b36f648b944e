"""Warnings that shown data is old: Slurm does not reply, or the daemon is on standby."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.cli.instants import clock
from mirage.cli.printing import show

if TYPE_CHECKING:
    from datetime import datetime

STANDS_BY = "stands by: "
"""Prefix of the daemon's state text while it does not decide; the reason follows."""


def tell_silence(since: datetime | None, sentence: str = "") -> None:
    """Warn on stderr if Slurm does not reply (``since`` when) or the daemon is on standby."""
    if sentence.startswith(STANDS_BY):
        show(f"The daemon {sentence}; the data shown is the last stored state.", err=True)
    if since:
        text = f"Slurm has not replied since {clock(since)}; the data shown is of that time."
        show(text, err=True)
