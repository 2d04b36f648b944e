"""Policies that score the ready requests once per period and keep the scores until the next one."""

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
    """Scores of some ready requests (N); 0 is the plain matcher. See ``kernel/scored.py``."""

    rows: Int32
    """[N] Rows of the view's ready requests, then of running ones in the order of their units."""
    kept: Float64
    """[N, KINDS + K] Columns as in ``kernel.scored``: kept by request, also for its later segments."""
    coming: Float64
    """[M, KINDS + K] Initial scores of requests of each model that arrive before the next scoring."""

    @classmethod
    def of_coming(cls, coming: Float64) -> Scores:
        """Scores that change no present request."""
        return cls(np.zeros(0, np.int32), coming[:0], coming)


@runtime_checkable
class ScoredPolicy(Protocol):
    """A ``RequestPolicy`` whose scores a compiled matcher can use without a call until the next period."""

    @property
    def name(self) -> str:
        """Name of the policy, as in options."""

    @property
    def period(self) -> float:
        """Seconds between two scorings."""

    @property
    def parameters(self) -> Float64:
        """[SETTINGS] Settings of ``kernel.scored.decide_scored``."""

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``."""

    def scores(self, view: SystemView) -> Scores:
        """Scores of the view's requests, to be kept until the next period."""
