"""A cluster that does not answer, a daemon that does not ask it: what is shown is what was known then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.cli.instants import clock
from mirage.cli.printing import show

if TYPE_CHECKING:
    from datetime import datetime

STANDS_BY = "stands by: "
"""Begins the sentence of a daemon that does not decide; the reason follows."""


def tell_silence(since: datetime | None, sentence: str = "") -> None:
    """On stderr, where the cluster has been silent since some time, or the daemon stands by."""
    if sentence.startswith(STANDS_BY):
        show(f"The daemon {sentence}; this is what was stored by then.", err=True)
    if since:
        text = f"The cluster has not answered since {clock(since)}: this is what was known then."
        show(text, err=True)
