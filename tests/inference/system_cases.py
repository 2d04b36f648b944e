"""Small systems and requests for tests, on a grid of times that floats represent exactly where it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from mirage.domain.inference import CostTable, DeviceSet, RequestTable


def cost_table(models: list[list[list[float]]], **columns: Any) -> CostTable:
    """``models``: for each its segments, for each segment its seconds on each kind."""
    seconds = np.array([row for model in models for row in model], dtype=np.float64)
    zeros = np.zeros_like(seconds)
    first = np.concatenate([[0], np.cumsum([len(model) for model in models])]).astype(np.int32)
    return CostTable(
        models=tuple(f"m{i}" for i in range(len(models))),
        first=first,
        pieces=tuple(f"p{i}" for i in range(len(seconds))),
        kinds=tuple(f"k{i}" for i in range(seconds.shape[1])),
        seconds=seconds,
        compute_seconds=np.asarray(columns.get("compute_seconds", seconds)),
        joules=np.asarray(columns.get("joules", zeros)),
        dram_bytes=np.asarray(columns.get("dram_bytes", zeros)),
    )


def request_table(arrival: list[float], model: list[int], **columns: Any) -> RequestTable:
    count = len(arrival)
    tenant = np.array(columns.get("tenant", np.zeros(count)), dtype=np.int32)
    return RequestTable(
        arrival=np.array(arrival, dtype=np.float64),
        model=np.array(model, dtype=np.int32),
        tenant=tenant,
        deadline=np.array(columns.get("deadline", np.full(count, np.inf)), dtype=np.float64),
        weight=np.ones(count),
        tenants=tuple(f"t{i}" for i in range(1 + int(tenant.max(initial=0)))),
    )


def unit_system(kinds: list[int], bandwidth: float = np.inf, idle_watts: float = 0.0) -> DeviceSet:
    return DeviceSet(
        names=tuple(f"u{i}" for i in range(len(kinds))),
        kind=np.array(kinds, dtype=np.int32),
        bandwidth=bandwidth,
        idle_watts=np.full(1 + max(kinds), idle_watts),
    )


@st.composite
def cases(
    draw: st.DrawFn, *, most_requests: int = 8, share: bool = True
) -> tuple[RequestTable, DeviceSet, CostTable]:
    """Two kinds, up to three models and four units; every model can run on the first kind, which is there."""
    eighths = st.integers(1, 64).map(lambda n: n / 8)
    second = eighths | st.just(np.nan)
    pieces = st.tuples(eighths, second).map(list)
    models = draw(st.lists(st.lists(pieces, min_size=1, max_size=4), min_size=1, max_size=3))
    count = draw(st.integers(1, most_requests))
    rows = sum(len(model) for model in models)
    moved = draw(st.lists(st.integers(0, 64), min_size=2 * rows, max_size=2 * rows))
    arrival = sorted(draw(st.lists(st.integers(0, 80), min_size=count, max_size=count)))
    model = draw(st.lists(st.integers(0, len(models) - 1), min_size=count, max_size=count))
    tenant = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    kinds = [0, *draw(st.lists(st.integers(0, 1), max_size=3))]
    bandwidth = float(draw(st.integers(1, 16))) if share else np.inf
    costs = cost_table(models, dram_bytes=np.array(moved, dtype=np.float64).reshape(rows, 2))
    requests = request_table([a / 8 for a in arrival], model, tenant=tenant)
    system = unit_system(kinds, bandwidth)
    return requests, _of_two_kinds(system), costs


def _of_two_kinds(system: DeviceSet) -> DeviceSet:
    return DeviceSet(system.names, system.kind, system.bandwidth, np.zeros(2))
