"""Which handovers train a model, and which choose it: split by time, so that nothing is known too early."""

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
    """Handovers from here on choose; those whose last outcome is known by then train."""
    end: Seconds
    """A handover of which any outcome comes later is left out."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for times that do not ascend."""
        if not self.first < self.validate_from < self.end:
            spelled = " < ".join(spell_instant(t) for t in (self.first, self.validate_from, self.end))
            raise ConfigError("--validate-from", f"must lie between --start and --end, not {spelled}")

    def split(self, whole: Table, smaller: Sequence[Table] = ()) -> tuple[Table, Table]:
        """Handovers to learn from, and those to choose by.

        ``whole`` is of the cluster as it is, ``smaller`` of the same cluster with fewer nodes: these only train.
        Raises ``ConfigError`` where either part is empty.
        """
        taught = [_known_by(table, self.validate_from) for table in (whole, *smaller)]
        known = _known_by(whole, self.end)
        teaching, choosing = stacked_tables(taught), known.between(self.validate_from, self.end)
        if not len(teaching):
            until = spell_instant(self.validate_from)
            raise ConfigError("--validate-from", f"no handover is over by {until}: validate from a later time")
        if not len(choosing):
            first = spell_instant(self.validate_from)
            raise ConfigError("--end", f"no handover from {first} on is over by {spell_instant(self.end)}")
        return teaching, choosing


def _known_by(table: Table, instant: Seconds) -> Table:
    return table.take(table.start.max(axis=1) < instant)
