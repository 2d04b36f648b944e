"""The right to lead, which at most one of several daemons on one database has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """As the database has it. No time is in it: who waits measures by their own clock how long it stays so."""

    holder: str = ""
    """Who has it, unique to one state directory; empty: nobody."""
    name: str = ""
    """How people call the holder."""
    term: int = 0
    """Counts those who had it one after the other; never goes back."""
    beat: int = 0
    """Counts the holder's renewals."""

    @property
    def vacant(self) -> bool:
        """Whether nobody has it."""
        return not self.holder


VACANT = Lease()
