"""Systems in the middle of their work, as policies see them; and slow, plain policies to compare against."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st
from plain_policies import PlainOrder
from system_cases import cases

from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.inference import CostTable, DeviceSet, RequestTable, SystemView

Pairs = list[tuple[int, int]]


@st.composite
def timed_cases(
    draw: st.DrawFn, *, most_requests: int = 12, share: bool = True
) -> tuple[RequestTable, DeviceSet, CostTable]:
    """Requests with deadlines that can and cannot be kept, of several weights; segments with energies."""
    requests, system, costs = draw(cases(most_requests=most_requests, share=share))
    count, shape = len(requests), costs.seconds.shape
    patience = draw(st.lists(st.integers(1, 200), min_size=count, max_size=count))
    weight = draw(st.lists(st.sampled_from([0.5, 1.0, 3.0, 9.0]), min_size=count, max_size=count))
    joules = np.array(draw(st.lists(st.integers(0, 8), min_size=2 * shape[0], max_size=2 * shape[0])))
    requests = replace(requests, deadline=requests.arrival + np.array(patience) / 8, weight=np.array(weight))
    return requests, system, replace(costs, joules=joules.reshape(shape).astype(np.float64))


@st.composite
def views(draw: st.DrawFn) -> SystemView:
    """Of a system that was served plainly for a while; at least one request is ready next to a free unit."""
    requests, system, costs = draw(timed_cases())
    simulated = SimulatedSystem(requests, system, costs, SharingRules())
    simulated.advance()
    view = simulated.view()
    for _ in range(draw(st.integers(0, 12))):
        kept = draw(st.integers(0, 2))
        dispatch = PlainOrder().decide(view)
        simulated.dispatch(replace(dispatch, ready=dispatch.ready[kept:], unit=dispatch.unit[kept:]))
        if not simulated.advance(simulated.now + 1.0) or not simulated.is_to_decide:
            break
        view = simulated.view()
    return view


def remaining(view: SystemView, piece: int) -> float:
    """Seconds to the end of the model, each segment on the kind that is fastest for it."""
    end = int(view.costs.first[np.searchsorted(view.costs.first, piece, side="right")])
    return float(np.nanmin(view.costs.seconds[piece:end], axis=1).sum())


def seconds(view: SystemView, row: int, unit: int) -> float:
    """Of a ready request's next segment; infinity where the unit cannot run it."""
    found = view.costs.seconds[view.piece[row], view.system.kind[unit]]
    return float(found) if found == found else np.inf  # noqa: PLR0124 (NaN)


def is_late(view: SystemView, row: int) -> bool:
    return bool(view.now + remaining(view, view.piece[row]) > view.deadline[row])


def free_units(view: SystemView) -> list[int]:
    return [u for u in range(len(view.running)) if view.running[u] < 0 and view.free_at[u] <= view.now]


def in_order(view: SystemView, key: Callable[[int], object]) -> list[int]:
    """Rows by a key; equal ones by arrival."""
    return sorted(range(len(view.request)), key=lambda row: (key(row), row))  # type: ignore[arg-type, return-value]


def assigned(view: SystemView, order: list[int], bandwidth: float = np.inf) -> Pairs:
    """Each in turn where its segment ends first, of the units that are free, up to this load."""
    pairs, free, wanted = [], free_units(view), float(sum(view.drawn))
    for row in order:
        able = [u for u in free if np.isfinite(seconds(view, row, u))]
        if able and wanted < bandwidth:
            unit = min(able, key=lambda u: (seconds(view, row, u), u))
            pairs.append((row, unit))
            free.remove(unit)
            wanted += _want(view, row, unit)
    return pairs


def assigned_waiting(view: SystemView, order: list[int], bandwidth: float = np.inf) -> Pairs:
    """Each in turn where its segment ends first, of all units, which are reserved for it from then on."""
    pairs, free, wanted = [], free_units(view), float(sum(view.drawn))
    at = {u: max(view.now, float(view.free_at[u])) for u in range(len(view.running))}
    for row in order:
        ends = {u: at[u] + seconds(view, row, u) for u in at}
        unit = min(ends, key=lambda u: (ends[u], u))
        if np.isfinite(ends[unit]):
            if unit in free and at[unit] == view.now and wanted < bandwidth:
                pairs.append((row, unit))
                wanted += _want(view, row, unit)
            at[unit] = ends[unit]
    return pairs


def _want(view: SystemView, row: int, unit: int) -> float:
    """Bytes per second of a segment alone on a unit."""
    return float(view.costs.dram_bytes[view.piece[row], view.system.kind[unit]]) / seconds(view, row, unit)
