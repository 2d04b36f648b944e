"""What one cycle of the loop did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from mirage.control.faults import Fault
    from mirage.domain.job import Seconds


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle did."""

    sentence: str
    wake: Seconds
    """When the next cycle must come at the latest; ``NEVER``: any time."""
    deciding: bool
    """Whether some chain awaits a decision."""
    faults: tuple[Fault, ...] = ()
    """Errors of single chains and commands; the others had their turn all the same."""


def joined(cycles: list[Cycle], faults: list[Fault]) -> Cycle:
    """One cycle out of those of each chain, and of the errors of commands."""
    return Cycle(
        "; ".join(cycle.sentence for cycle in cycles) or "no chain needs attention",
        min((cycle.wake for cycle in cycles), default=NEVER),
        any(cycle.deciding for cycle in cycles),
        (*faults, *(fault for cycle in cycles for fault in cycle.faults)),
    )


def faultless(cycle: Cycle) -> Cycle:
    """The cycle. Raises the first error in it."""
    if cycle.faults:
        raise cycle.faults[0].error
    return cycle
