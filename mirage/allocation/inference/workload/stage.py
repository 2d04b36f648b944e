"""A scenario prepared for a run: costs read or drawn, system built, requests drawn by seed.

Arrivals are drawn tenant by tenant, or read from a trace. Cost tables are drawn for tests, and for trials
before a measured table exists: a segment is a number of operations and of bytes, with a preference for one kind
of dataflow. A kind has a peak of operations, a memory port, and an efficiency for each preference, so that no
kind is the best for everything. By the roofline model a segment takes the longer of computing and data
transfer. The numbers are of the order of edge devices (1e11 to 1e12 operations and 1e10 bytes per second), and
represent no device in particular.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.bound import capacity
from mirage.allocation.inference.costs.tableops import group_pieces
from mirage.allocation.inference.costs.tables import cost_table
from mirage.allocation.inference.encode import isolated_seconds
from mirage.allocation.inference.rules import SharingRules
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.allocation.inference.workload.scenario import MLPERF_SECONDS, Bursts, Measure, Trace
from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.inference import CostTable, DeviceSet, RequestTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.workload.scenario import Bound, Poisson, Scenario, Tenant
    from mirage.domain.inference import Float64, Int32

_PEAK = (1e12, 4e11)
"""Operations per second; a third kind is like the first again, and so on."""
_PORT = (1.6e10, 1.2e10)
"""Bytes per second."""
_JOULES = (4e-13, 8e-13)
"""Joules per operation."""
_JOULES_OF_A_BYTE = 1e-10
_BENTS = 3
_INTENSITY = (200.0, 40.0, 4.0)
"""Median operations per byte, by preference: convolutions, depthwise ones and small products, look-ups."""


def synthetic_costs(
    seed: int = 0, models: int = 8, kinds: int = 2, mean_pieces: float = 20.0, operations: float = 2e9
) -> CostTable:
    """``operations``: median of a model."""
    rng = np.random.default_rng(seed)
    counts = 1 + rng.poisson(mean_pieces - 1.0, models)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    pieces = int(first[-1])
    model = np.repeat(np.arange(models), counts)
    bent = (rng.integers(0, _BENTS, models)[model] + (rng.random(pieces) < 0.3)) % _BENTS
    size = rng.lognormal(0.0, 0.5, pieces)
    whole = operations * rng.lognormal(0.0, 0.8, models)
    work = whole[model] * size / np.bincount(model, size)[model]
    moved = work / (np.array(_INTENSITY)[bent] * rng.lognormal(0.0, 0.4, pieces))
    kind = np.arange(kinds) % len(_PEAK)
    efficiency = rng.uniform(0.15, 0.9, (_BENTS, kinds))[bent] * rng.uniform(0.8, 1.0, (pieces, kinds))
    computing = work[:, None] / (np.array(_PEAK)[kind] * efficiency)
    return CostTable(
        models=tuple(f"model{row}" for row in range(models)),
        first=first,
        pieces=tuple(f"piece{row - first[model[row]]}" for row in range(pieces)),
        kinds=tuple(f"kind{row}" for row in range(kinds)),
        seconds=np.maximum(computing, moved[:, None] / np.array(_PORT)[kind]),
        compute_seconds=computing,
        joules=work[:, None] * np.array(_JOULES)[kind] / efficiency + moved[:, None] * _JOULES_OF_A_BYTE,
        dram_bytes=np.repeat(moved[:, None], kinds, axis=1),
    )


def draw_times(arrivals: Poisson | Bursts, rate: float, duration: float, rng: np.random.Generator) -> Float64:
    """Arrival times of one tenant's requests in [0, duration); ``rate``: mean requests per second.

    A Poisson process with a changing rate is one of rate 1 in a time that passes in proportion to the rate.
    """
    times, counted = _phases(arrivals, duration, rng) if isinstance(arrivals, Bursts) else _steady(duration)
    total = rate * counted[-1]
    spots = np.sort(rng.uniform(0.0, total, rng.poisson(total)))
    return np.asarray(np.interp(spots, rate * counted, times))


def _steady(duration: float) -> tuple[Float64, Float64]:
    return np.array([0.0, duration]), np.array([0.0, duration])


def _phases(bursts: Bursts, duration: float, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Times at which the phases change, and the integral of the rate up to then, in units of the mean rate."""
    low = max(1.0 - bursts.factor * bursts.part, 0.0) / (1.0 - bursts.part)
    means = bursts.seconds * (1.0 - bursts.part) / bursts.part, bursts.seconds
    rates = low, bursts.factor
    phase, times, counted = int(rng.random() < bursts.part), [0.0], [0.0]
    while times[-1] < duration:
        end = min(times[-1] + rng.exponential(means[phase]), duration)
        counted.append(counted[-1] + rates[phase] * (end - times[-1]))
        times.append(end)
        phase = 1 - phase
    return np.array(times), np.array(counted)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests of a trace, in order of arrival."""

    time: Float64
    tenant: Int32
    model: Int32


def read_trace(path: str, tenants: Sequence[str], models: Sequence[str]) -> Recorded:
    """Read a CSV file with the columns time (s), tenant and model. Raises ``TraceError``."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(path, 0, "", f"cannot be read: {error}") from error
    rows = csv.DictReader(io.StringIO(text), strict=True)
    known = {name: row for row, name in enumerate(tenants)}, {name: row for row, name in enumerate(models)}
    try:
        missing = {"time", "tenant", "model"} - set(rows.fieldnames or ())
        if missing:
            raise TraceError(path, 1, ", ".join(sorted(missing)), "no such column")
        read = [_read_row(path, rows.line_num, row, *known) for row in rows]
    except csv.Error as error:
        raise TraceError(path, rows.line_num, "", f"invalid CSV: {error}") from None
    time, tenant, model = np.array(read, dtype=np.float64).reshape(-1, 3).T
    order = np.argsort(time, kind="stable")
    return Recorded(time[order], tenant[order].astype(np.int32), model[order].astype(np.int32))


def _read_row(
    path: str, line: int, row: dict[str, str | None], tenants: dict[str, int], models: dict[str, int]
) -> tuple[float, int, int]:
    try:
        time = float(row["time"] or "")
    except ValueError:
        time = np.nan
    if not 0 <= time < np.inf:
        raise TraceError(path, line, "time", f"{row['time']!r} is not a number of seconds")
    for column, known in (("tenant", tenants), ("model", models)):
        if row[column] not in known:
            raise TraceError(path, line, column, f"{row[column]!r} is not one of: {', '.join(known)}")
    return time, tenants[str(row["tenant"])], models[str(row["model"])]


_MOST_REQUESTS = 20_000_000


@dataclass(frozen=True, slots=True)
class PreparedScenario:
    """A scenario with everything derived from it."""

    scenario: Scenario
    costs: CostTable
    system: DeviceSet
    rules: SharingRules
    mixes: Float64
    """[T, M] Share of each model in a tenant's requests, sum 1."""
    bounds: Float64
    """[T, M] Seconds after which a request is late; NaN for models that the tenant does not use."""
    rates: Float64
    """[T] Requests per second of each tenant; 0 for a trace."""

    def simulated(self, seed: int) -> SimulatedSystem:
        """The system before the first request of this seed."""
        return SimulatedSystem(self.requests(seed), self.system, self.costs, self.rules)

    def requests(self, seed: int) -> RequestTable:
        """Requests of one seed; a tenant's do not depend on other tenants. The same for all seeds of a trace."""
        if isinstance(self.scenario.arrivals, Trace):
            return self._recorded(self.scenario.arrivals)
        return self._table(*(np.concatenate(column) for column in zip(*self._drawn(seed), strict=True)))

    def _drawn(self, seed: int) -> list[tuple[Float64, Float64, Float64]]:
        """Times, tenants and models of each tenant's requests."""
        columns = []
        for row, (mix, rate) in enumerate(zip(self.mixes, self.rates, strict=True)):
            rng = np.random.default_rng([seed, row])
            assert not isinstance(self.scenario.arrivals, Trace)
            times = draw_times(self.scenario.arrivals, rate, self.scenario.duration, rng)
            columns.append(
                (times, np.full(len(times), float(row)), rng.choice(len(mix), len(times), p=mix).astype(float))
            )
        return columns

    def _recorded(self, trace: Trace) -> RequestTable:
        tenants = [tenant.name for tenant in self.scenario.tenants]
        read = read_trace(trace.path, tenants, self.costs.models)
        for row in np.flatnonzero(np.isnan(self.bounds[read.tenant, read.model]))[:1]:
            name = self.costs.models[read.model[row]]
            raise ConfigError(trace.path, f"tenant {tenants[read.tenant[row]]!r} does not use {name!r}")
        within = read.time < self.scenario.duration
        return self._table(read.time[within], read.tenant[within].astype(float), read.model[within].astype(float))

    def _table(self, time: Float64, tenant: Float64, model: Float64) -> RequestTable:
        order = np.argsort(time, kind="stable")
        rows, models = tenant[order].astype(np.int32), model[order].astype(np.int32)
        weights = np.array([each.weight for each in self.scenario.tenants])
        return RequestTable(
            arrival=time[order],
            model=models,
            tenant=rows,
            deadline=time[order] + self.bounds[rows, models],
            weight=weights[rows],
            tenants=tuple(each.name for each in self.scenario.tenants),
        )


def set_stage(scenario: Scenario) -> PreparedScenario:
    """Read the costs, build the system, find the rates. Raises ``ConfigError`` for what does not match."""
    costs = find_costs(scenario.costs)
    if scenario.pieces:
        costs = group_pieces(costs, scenario.pieces)
    system = _system(scenario, costs)
    isolated = isolated_seconds(costs, system)
    mixes = np.array([_mix(scenario, tenant, costs, isolated) for tenant in scenario.tenants])
    bounds = np.array([_bounds(scenario, tenant, costs, isolated) for tenant in scenario.tenants])
    rules = SharingRules(sharing=scenario.sharing)
    return PreparedScenario(
        scenario, costs, system, rules, mixes, bounds, _rates(scenario, costs, system, mixes, isolated)
    )


@lru_cache(maxsize=8)
def find_costs(name: str) -> CostTable:
    """The cost table of a scenario. Raises what ``costs.tables.cost_table`` raises."""
    kind, _, seed = name.partition(":")
    if kind == "synthetic":
        if seed and not seed.isdecimal():
            raise ConfigError("costs", f"{name!r}: the seed must be a number, as in synthetic:3")
        return synthetic_costs(int(seed or 0))
    return cost_table(name)


def _system(scenario: Scenario, costs: CostTable) -> DeviceSet:
    unknown = sorted({group.kind for group in scenario.units} - set(costs.kinds))
    if unknown:
        raise ConfigError(
            f"{scenario.name}: system.units",
            f"no costs of {', '.join(unknown)} (known kinds: {', '.join(costs.kinds)})",
        )
    idle = dict.fromkeys(costs.kinds, 0.0) | {group.kind: group.idle_watts for group in scenario.units}
    names = [f"{group.kind}.{number}" for group in scenario.units for number in range(group.count)]
    kinds = [costs.kinds.index(group.kind) for group in scenario.units for _ in range(group.count)]
    watts = np.array([idle[kind] for kind in costs.kinds])
    return DeviceSet(tuple(names), np.array(kinds, dtype=np.int32), scenario.bandwidth, watts)


def _mix(scenario: Scenario, tenant: Tenant, costs: CostTable, isolated: Float64) -> Float64:
    where = f"{scenario.name}: tenant {tenant.name}"
    unknown = sorted({name for name, _ in (*tenant.models, *tenant.bounds)} - set(costs.models))
    if unknown:
        known = ", ".join(costs.models)
        raise ConfigError(where, f"no costs of {', '.join(unknown)} (known models: {known})")
    mix = np.zeros(len(costs.models))
    for name, part in tenant.models:
        mix[costs.models.index(name)] += part
    if np.isnan(isolated[mix > 0]).any():
        cannot = [costs.models[row] for row in np.flatnonzero((mix > 0) & np.isnan(isolated))]
        raise ConfigError(where, f"no unit can run all of {', '.join(cannot)}")
    return np.asarray(mix / mix.sum())


def _bounds(scenario: Scenario, tenant: Tenant, costs: CostTable, isolated: Float64) -> Float64:
    own = dict(tenant.bounds)
    bounds: Float64 = np.full(len(costs.models), np.nan)
    for name, _ in tenant.models:
        row = costs.models.index(name)
        bound = own.get(name, tenant.bound)
        bounds[row] = bound.factor * _unit(f"{scenario.name}: tenant {tenant.name}", bound, name, isolated[row])
    return bounds


def _unit(where: str, bound: Bound, model: str, isolated: float) -> float:
    if bound.measure is Measure.SECONDS:
        return 1.0
    if bound.measure is Measure.ISOLATED:
        return isolated
    plain = model.replace("-", "").lower()
    known = [name for name in MLPERF_SECONDS if plain.startswith(name.replace("-", ""))]
    if not known:
        raise ConfigError(where, f"MLPerf has no bound for {model}; set one in deadlines")
    return MLPERF_SECONDS[max(known, key=len)]


def _rates(scenario: Scenario, costs: CostTable, system: DeviceSet, mixes: Float64, isolated: Float64) -> Float64:
    if isinstance(scenario.arrivals, Trace):
        return np.zeros(len(mixes))
    shares = np.array([tenant.share for tenant in scenario.tenants])
    rates = shares / (mixes @ np.nan_to_num(isolated))
    rates /= rates.sum()
    rates *= scenario.load * capacity(costs, system, rates @ mixes)
    if rates.sum() * scenario.duration > _MOST_REQUESTS:
        raise ConfigError(f"{scenario.name}: duration", f"more than {_MOST_REQUESTS:,} requests would arrive")
    return np.asarray(rates)
