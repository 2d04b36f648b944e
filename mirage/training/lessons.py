"""Split handovers by time into training set and validation set, so that no later event is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import ConfigError
from mirage.domain.instants import spell_instant
from mirage.predictors.artifacts.stacking import stacked_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.job import Seconds
    from mirage.features.table import Table


@dataclass(frozen=True, slots=True)
class Lessons:
    """Times in seconds."""

    first: Seconds
    """The first handover."""
    validate_from: Seconds
    """Handovers from here on validate; those whose last outcome is known by then train."""
    end: Seconds
    """A handover with any later outcome is left out."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for times that do not ascend."""
        if not self.first < self.validate_from < self.end:
            spelled = " < ".join(spell_instant(t) for t in (self.first, self.validate_from, self.end))
            raise ConfigError("--validate-from", f"must lie between --start and --end, not {spelled}")

    def split(self, whole: Table, smaller: Sequence[Table] = ()) -> tuple[Table, Table]:
        """Handovers for training, and those for validation.

        ``whole`` is of the cluster as it is, ``smaller`` of the same cluster with fewer nodes, only for training.
        Raises ``ConfigError`` where either part is empty.
        """
        taught = [_known_by(table, self.validate_from) for table in (whole, *smaller)]
        known = _known_by(whole, self.end)
        teaching, choosing = stacked_tables(taught), known.between(self.validate_from, self.end)
        if not len(teaching):
            until = spell_instant(self.validate_from)
            raise ConfigError("--validate-from", f"no handover ends by {until}; use a later time")
        if not len(choosing):
            first = spell_instant(self.validate_from)
            raise ConfigError("--end", f"no handover from {first} on ends by {spell_instant(self.end)}")
        return teaching, choosing


def _known_by(table: Table, instant: Seconds) -> Table:
    return table.take(table.start.max(axis=1) < instant)
