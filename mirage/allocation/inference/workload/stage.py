"""A scenario prepared for a run: costs read, system built, requests drawn by seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.inference.costs.grouping import group_pieces
from mirage.allocation.inference.costs.tables import cost_table
from mirage.allocation.inference.encode import isolated_seconds
from mirage.allocation.inference.rules import SharingRules
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.allocation.inference.workload.arrivals import draw_times, read_trace
from mirage.allocation.inference.workload.capacity import capacity
from mirage.allocation.inference.workload.scenario import MLPERF_SECONDS, Measure, Trace
from mirage.allocation.inference.workload.synthetic import synthetic_costs
from mirage.domain.errors import ConfigError
from mirage.domain.request import RequestTable
from mirage.domain.units import UnitSystem

if TYPE_CHECKING:
    from mirage.allocation.inference.workload.scenario import Bound, Scenario, Tenant
    from mirage.domain.request import CostTable, Float64

_MOST_REQUESTS = 20_000_000


@dataclass(frozen=True, slots=True)
class Stage:
    """A scenario with everything derived from it."""

    scenario: Scenario
    costs: CostTable
    system: UnitSystem
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


def set_stage(scenario: Scenario) -> Stage:
    """Read the costs, build the system, find the rates. Raises ``ConfigError`` for what does not match."""
    costs = find_costs(scenario.costs)
    if scenario.pieces:
        costs = group_pieces(costs, scenario.pieces)
    system = _system(scenario, costs)
    isolated = isolated_seconds(costs, system)
    mixes = np.array([_mix(scenario, tenant, costs, isolated) for tenant in scenario.tenants])
    bounds = np.array([_bounds(scenario, tenant, costs, isolated) for tenant in scenario.tenants])
    rules = SharingRules(sharing=scenario.sharing)
    return Stage(scenario, costs, system, rules, mixes, bounds, _rates(scenario, costs, system, mixes, isolated))


@lru_cache(maxsize=8)
def find_costs(name: str) -> CostTable:
    """The cost table of a scenario. Raises what ``costs.tables.cost_table`` raises."""
    kind, _, seed = name.partition(":")
    if kind == "synthetic":
        if seed and not seed.isdecimal():
            raise ConfigError("costs", f"{name!r}: the seed must be a number, as in synthetic:3")
        return synthetic_costs(int(seed or 0))
    return cost_table(name)


def _system(scenario: Scenario, costs: CostTable) -> UnitSystem:
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
    return UnitSystem(tuple(names), np.array(kinds, dtype=np.int32), scenario.bandwidth, watts)


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


def _rates(scenario: Scenario, costs: CostTable, system: UnitSystem, mixes: Float64, isolated: Float64) -> Float64:
    if isinstance(scenario.arrivals, Trace):
        return np.zeros(len(mixes))
    shares = np.array([tenant.share for tenant in scenario.tenants])
    rates = shares / (mixes @ np.nan_to_num(isolated))
    rates /= rates.sum()
    rates *= scenario.load * capacity(costs, system, rates @ mixes)
    if rates.sum() * scenario.duration > _MOST_REQUESTS:
        raise ConfigError(f"{scenario.name}: duration", f"more than {_MOST_REQUESTS:,} requests would arrive")
    return np.asarray(rates)
