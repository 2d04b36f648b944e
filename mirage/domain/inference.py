"""Inference requests as columns, their cost on each kind of device, and the devices that answer them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class CostTable:
    """Cost of each segment (L) of each model (M) on each kind of unit (K).

    A segment (``piece`` in names) is a layer, several layers, or a whole network: a unit runs it without a break.
    A model's segments run one after the other, in the order of their rows. NaN: this kind cannot run this segment.
    """

    models: tuple[str, ...]
    """[M]"""
    first: Int32
    """[M + 1] First segment of each model."""
    pieces: tuple[str, ...]
    """[L] Names, unique within a model."""
    kinds: tuple[str, ...]
    """[K]"""
    seconds: Float64
    """[L, K] Alone on the unit, with as much bandwidth as the unit can draw."""
    compute_seconds: Float64
    """[L, K] What of it would remain if memory were infinitely fast; at most ``seconds``."""
    joules: Float64
    """[L, K] Of one run."""
    dram_bytes: Float64
    """[L, K] Moved to and from the shared memory; 0 where nothing is shared."""

    def remaining(self) -> Float64:
        """[L, K] Seconds from the start of a segment to the end of its model, all on one kind; NaN as above."""
        tail = np.empty_like(self.seconds)
        for begin, end in zip(self.first[:-1], self.first[1:], strict=True):
            tail[begin:end] = np.cumsum(self.seconds[begin:end][::-1], axis=0)[::-1]
        return tail


@dataclass(frozen=True, slots=True)
class RequestTable:
    """Requests (R) in order of arrival; a request's row is its number. Times are seconds from the table's zero."""

    arrival: Float64
    """[R] Ascending."""
    model: Int32
    """[R] Row of ``CostTable.models``."""
    tenant: Int32
    """[R] Row of ``tenants``."""
    deadline: Float64
    """[R] The time at which the answer is late; infinity where it has no deadline."""
    weight: Float64
    """[R] How much the request matters next to others; above 0, 1 is usual."""
    tenants: tuple[str, ...]
    """[T]"""

    def __len__(self) -> int:
        return len(self.arrival)


Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeviceSet:
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
    system: DeviceSet
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
