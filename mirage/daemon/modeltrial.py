"""Models in shadow: put in use, or watched no more, by what was measured of them on the site's own handovers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.predictors.artifacts.shelf import read_package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.predictors.artifacts.shelf import Shelf
    from mirage.replay.shadows import Measured

FEWEST = 20
"""Handovers without which nothing is decided."""
CLEAR = 2.0
"""Standard errors by which a gain, or a loss, must exceed nothing."""


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """Looks at each model that is watched."""

    shelf: Shelf
    comparison: Callable[[], Iterable[Measured]]
    """Every predictor by partition; a model is named by its directory."""
    changed: Callable[[], None]
    """Called when another model is in use, or in shadow."""
    promote: bool = True

    def run(self) -> str:
        """Decide where it is clear; says what was decided. Raises ``MirageError``."""
        watched = self.shelf.watched()
        if not watched:
            return ""
        measured, said = list(self.comparison()), []
        for name, folder in watched.items():
            of = [each for each in measured if each.predictor == f"{name}:{folder}" and each.handovers >= FEWEST]
            better = [each for each in of if each.gain > CLEAR * each.gain_error]
            worse = [each for each in of if each.gain < -CLEAR * each.gain_error]
            if worse:
                self.shelf.drop(name)
                said.append(f"{name}:{folder.name} costs {_gain(worse[0])}: no longer in shadow")
            elif better and self.promote:
                self.shelf.put_in_use(read_package(folder))
                said.append(f"{name}:{folder.name} costs {_gain(better[0])}: active from now on")
        if said:
            self.changed()
        return "; ".join(said)


def _gain(measured: Measured) -> str:
    where = f" in partition {measured.partition}" if measured.partition else ""
    than = "less" if measured.gain > 0 else "more"
    told = f"{abs(measured.gain):.2f} h (+-{measured.gain_error:.2f}) {than} a handover"
    return f"{told} than the active predictor{where}, {measured.handovers} handovers"
