"""The right to lead, which at most one of several daemons on one database has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease in the database. It has no time: a standby measures with its clock how long it stays unchanged."""

    holder: str = ""
    """Holder, unique per state directory; empty: none."""
    name: str = ""
    """Name of the holder for users."""
    term: int = 0
    """Counts those who had it one after the other; never goes back."""
    beat: int = 0
    """Counts the holder's renewals."""

    @property
    def vacant(self) -> bool:
        """Whether no daemon holds the lease."""
        return not self.holder


VACANT = Lease()
