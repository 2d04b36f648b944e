"""A cluster that does not answer: what is shown is what was known then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.cli.instants import clock
from mirage.cli.printing import show

if TYPE_CHECKING:
    from datetime import datetime


def tell_silence(since: datetime | None) -> None:
    """On stderr, where the cluster has been silent since some instant."""
    if since:
        text = f"The cluster has not answered since {clock(since)}: this is what was known then."
        show(text, err=True)
