"""Policies that score the ready requests once a period, and whose scores are kept until the next one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.units import Dispatch, SystemView

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Scores:
    """What some ready requests (N) are worth; 0 is the plain matcher's own opinion. See ``kernel/scored.py``."""

    rows: Int32
    """[N] Of the view's ready requests; behind them count those that run, in the order of their units."""
    kept: Float64
    """[N, KINDS + K] Columns as in ``kernel.scored``: kept by request, its following pieces included."""
    coming: Float64
    """[M, KINDS + K] What requests of each model begin with that come before there are other scores."""

    @classmethod
    def of_coming(cls, coming: Float64) -> Scores:
        """Nobody's who is there already."""
        return cls(np.zeros(0, np.int32), coming[:0], coming)


@runtime_checkable
class ScoredPolicy(Protocol):
    """A ``RequestPolicy`` whose scores a compiled matcher can obey without asking again until the next period."""

    @property
    def name(self) -> str:
        """As the user names it."""

    @property
    def period(self) -> float:
        """Seconds between two scorings."""

    @property
    def parameters(self) -> Float64:
        """[SETTINGS] Of ``kernel.scored.decide_scored``."""

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``."""

    def scores(self, view: SystemView) -> Scores:
        """Those of now."""
