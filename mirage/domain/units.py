"""The units of a system that answers requests, and how it stands at one time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.request import CostTable

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class UnitSystem:
    """Units (U) of several kinds that share one memory."""

    names: tuple[str, ...]
    """[U] Unique."""
    kind: Int32
    """[U] Row of the cost table's ``kinds``."""
    bandwidth: float
    """Bytes a second that all units can draw together; infinity where they do not share."""
    idle_watts: Float64
    """[K] What a unit of each kind draws while it does nothing; 0 where it is not known."""


@dataclass(frozen=True, slots=True)
class SystemView:
    """The system as a policy sees it at one time. Arrays are borrowed: read them, keep none, change none.

    Ready (P) are the requests whose next segment waits for a unit, in order of arrival; those whose segment runs
    at present are not among them.
    """

    now: float
    system: UnitSystem
    costs: CostTable
    request: Int64
    """[P] Number of the request: unique, ascending with arrival, the same at every time."""
    model: Int32
    """[P]"""
    piece: Int32
    """[P] Row of the cost table: the next segment."""
    tenant: Int32
    """[P]"""
    arrival: Float64
    """[P]"""
    deadline: Float64
    """[P]"""
    weight: Float64
    """[P]"""
    ready_since: Float64
    """[P] When the segment before it ended, or the request arrived."""
    served: Float64
    """[P] Seconds on units so far."""
    running: Int64
    """[U] Number of the request on each unit; -1 where it is free."""
    running_piece: Int64
    """[U] Row of the cost table: what runs; -1 where it is free. The segments after it are still to come."""
    running_deadline: Float64
    """[U] Of the request on each unit; infinity where it is free."""
    running_weight: Float64
    """[U] Of the request on each unit; 0 where it is free."""
    free_at: Float64
    """[U] When it is estimated to be free; not after ``now`` where it is. Infinity: the unit is down."""
    drawn: Float64
    """[U] Bytes a second that what runs on it wants."""
    tenant_ended: Int64
    """[T] Requests of each tenant that were answered or abandoned so far."""
    tenant_kept: Int64
    """[T] Of these, answered before their deadline."""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Which ready requests begin their next segment now, and where. A unit and a request appear at most once."""

    ready: Int32
    """[N] Rows of the view's ready requests."""
    unit: Int32
    """[N] Rows of the system's units; each is free."""
