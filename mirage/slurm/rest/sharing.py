"""Whether a second job like a running one fits on its nodes, by what slurmrestd says of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.slurm import nodesharing

if TYPE_CHECKING:
    from mirage.slurm.rest.fields import Record


def why_shared(record: Record) -> str:
    """Why it may; empty: Slurm gives its nodes to no other job, and it stays on them until it is over.

    For whole nodes ``shared`` is ``"none"`` up to v0.0.38 and ``["none"]`` up to v0.0.44; v0.0.45 lacks it.
    """
    if record.get("requeue") is not False:
        return nodesharing.MAY_BE_REQUEUED
    if record.get("shared") in ("none", ["none"]):
        return ""
    return "slurmrestd does not say that its links have whole nodes (--exclusive)"
