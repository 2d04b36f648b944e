"""A system, its costs and its requests as tables of the kernel; rejects what cannot be simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.kernel.layout import (
    CONFIG,
    NOT_SHARED,
    PROPORTIONAL,
    ROOFLINE,
    SEGMENT,
    SIM,
    UNIT,
    SystemState,
    SystemTables,
)
from mirage.allocation.inference.kernel.scored import KINDS
from mirage.allocation.inference.rules import Sharing
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.inference.rules import SharingRules
    from mirage.domain.inference import CostTable, DeviceSet, RequestTable

_ROOM = 1024
"""Initial capacity of ready requests and segments."""


class ImpossibleRequests(MirageError):
    """A system, its costs and its requests do not match; the text lists all problems."""


def encode(requests: RequestTable, system: DeviceSet, costs: CostTable, rules: SharingRules) -> SystemTables:
    """The read-only tables. Raises ``ImpossibleRequests``."""
    faults = (*_faults_of_costs(costs), *_faults_of_system(system, costs))
    faults = faults or (*_faults_of_requests(requests, costs), *_unanswerable(requests, system, costs))
    if faults:
        raise ImpossibleRequests("; ".join(faults))
    return SystemTables(
        config=_config(system, rules),
        arrival=_floats(requests.arrival),
        deadline=_floats(requests.deadline),
        weight=_floats(requests.weight),
        model=_ints(requests.model),
        tenant=_ints(requests.tenant),
        number=np.arange(len(requests), dtype=np.int64),
        first=_ints(costs.first),
        kind=_ints(system.kind),
        seconds=_floats(costs.seconds),
        compute_seconds=_floats(costs.compute_seconds),
        joules=_floats(costs.joules),
        dram_bytes=_floats(costs.dram_bytes),
        remaining=_floats(costs.remaining()),
        least=least_seconds(costs),
    )


def without_delay(fixed: SystemTables) -> SystemTables:
    """The same with decisions that take no time."""
    config = fixed.config.copy()
    config["decision_seconds"] = 0.0
    return fixed._replace(config=config)


def new_world(requests: RequestTable, system: DeviceSet, costs: CostTable) -> SystemState:
    """The initial state: no request has arrived; the clock is at 0, or earlier if requests are."""
    count, units = len(requests), len(system.names)
    sim = np.zeros(1, dtype=SIM)
    sim["now"] = min(0.0, float(requests.arrival.min(initial=0.0)))
    return SystemState(
        sim=sim,
        piece=_ints(costs.first[requests.model]).copy(),
        ready_since=np.full(count, np.nan),
        served=np.zeros(count),
        begin=np.full(count, np.nan),
        end=np.full(count, np.nan),
        energy=np.zeros(count),
        ready=np.zeros(_ROOM + 4 * units, dtype=np.int64),
        running=np.full(units, -1, dtype=np.int64),
        free_at=np.full(units, sim["now"][0]),
        drawn=np.zeros(units),
        units=np.zeros(units, dtype=UNIT),
        tenant_ended=np.zeros(len(requests.tenants), dtype=np.int64),
        tenant_kept=np.zeros(len(requests.tenants), dtype=np.int64),
        log=np.zeros(_ROOM + 4 * units, dtype=SEGMENT),
        fresh=np.zeros(0, dtype=np.int32),
        kept=np.zeros((0, KINDS + len(costs.kinds))),
        coming=np.zeros((len(costs.models), KINDS + len(costs.kinds))),
    )


def least_seconds(costs: CostTable, kinds: NDArray[np.int32] | None = None) -> NDArray[np.float64]:
    """[L] Seconds from the start of a segment to the end of its model, each segment on the fastest of some kinds.

    NaN where one of these segments runs on none of them.
    """
    seconds = costs.seconds if kinds is None else costs.seconds[:, kinds]
    least = np.fmin.reduce(seconds, axis=1, initial=np.nan)
    for begin, end in zip(costs.first[:-1], costs.first[1:], strict=True):
        least[begin:end] = np.cumsum(least[begin:end][::-1])[::-1]
    return np.ascontiguousarray(least)


def isolated_seconds(costs: CostTable, system: DeviceSet) -> NDArray[np.float64]:
    """[M] Seconds of a model alone: all of it on the system's best kind for it.

    If no kind can run all of it, each segment on its best kind. NaN if a segment has no kind.
    """
    kinds = np.unique(system.kind)
    whole = np.fmin.reduce(costs.remaining()[costs.first[:-1]][:, kinds], axis=1, initial=np.nan)
    return np.where(np.isnan(whole), least_seconds(costs, kinds)[costs.first[:-1]], whole)


def _config(system: DeviceSet, rules: SharingRules) -> NDArray[np.void]:
    config = np.zeros(1, dtype=CONFIG)
    codes = {Sharing.PROPORTIONAL: PROPORTIONAL, Sharing.ROOFLINE: ROOFLINE}
    config["bandwidth"] = system.bandwidth
    config["sharing"] = codes[rules.sharing] if np.isfinite(system.bandwidth) else NOT_SHARED
    config["decision_seconds"] = rules.decision_seconds
    config["logged"] = rules.logged
    return config


def _faults_of_costs(costs: CostTable) -> tuple[str, ...]:
    known = ~np.isnan(costs.seconds)
    checks = {
        "segments must take more than 0 seconds": (costs.seconds[known] > 0).all(),
        "seconds must be finite": np.isfinite(costs.seconds[known]).all(),
        "joules must be finite and not negative": _fine(costs.joules[known]),
        "bytes must be finite and not negative": _fine(costs.dram_bytes[known]),
        "every model must have segments": (np.diff(costs.first) > 0).all(),
    }
    return tuple(f"costs: {fault}" for fault, fine in checks.items() if not fine)


def _faults_of_system(system: DeviceSet, costs: CostTable) -> tuple[str, ...]:
    checks = {
        "the system must have units": len(system.names) > 0,
        "units must have different names": len(set(system.names)) == len(system.names),
        "units must be of kinds in the costs": _rows_of(system.kind, len(costs.kinds)),
        "bandwidth must be above 0": system.bandwidth > 0,
        "idle watts must be given for each kind, and not be negative": len(system.idle_watts) == len(costs.kinds)
        and _fine(system.idle_watts),
    }
    return tuple(f"system: {fault}" for fault, fine in checks.items() if not fine)


def _faults_of_requests(requests: RequestTable, costs: CostTable) -> tuple[str, ...]:
    checks = {
        "arrivals must be finite and ascending": np.isfinite(requests.arrival).all()
        and (np.diff(requests.arrival) >= 0).all(),
        "models must be among those of the costs": _rows_of(requests.model, len(costs.models)),
        "tenants must be rows of the tenants": _rows_of(requests.tenant, len(requests.tenants)),
        "deadlines must come after arrivals": (requests.deadline > requests.arrival).all(),
        "weights must be finite and above 0": np.isfinite(requests.weight).all() and (requests.weight > 0).all(),
    }
    return tuple(f"requests: {fault}" for fault, fine in checks.items() if not fine)


def _unanswerable(requests: RequestTable, system: DeviceSet, costs: CostTable) -> tuple[str, ...]:
    """Requested models with a segment that no unit can run."""
    if not _rows_of(requests.model, len(costs.models)):
        return ()
    least = least_seconds(costs, np.unique(system.kind))[costs.first[:-1]]
    asked = np.unique(requests.model)
    return tuple(f"no unit can run all of {costs.models[row]}" for row in asked[np.isnan(least[asked])])


def _fine(values: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(values).all() and (values >= 0).all())


def _rows_of(rows: NDArray[np.int32], count: int) -> bool:
    return bool(((rows >= 0) & (rows < count)).all())


def _floats(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Arrays for the kernel: of one layout, and never read-only ones."""
    return np.array(values, dtype=np.float64, order="C")


def _ints(values: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32, order="C")
