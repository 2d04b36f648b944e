"""Shared bandwidth: against a slow fluid reference in exact fractions, and what holds of any run."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_policies import PlainOrder
from system_cases import cost_table, request_table, unit_system

from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem

if TYPE_CHECKING:
    from mirage.domain.inference import CostTable, DeviceSet, RequestTable

RULES = st.sampled_from(["proportional", "roofline"])


def shares(wanted: list[Fraction], bandwidth: Fraction, rule: str) -> list[Fraction]:
    """The share of each. Max-min: all grow alike until each has enough or nothing is left."""
    if sum(wanted) <= bandwidth:
        return wanted
    if rule == "proportional":
        return [each * bandwidth / sum(wanted) for each in wanted]
    given, left = [Fraction(0)] * len(wanted), bandwidth
    thirsty = [i for i, each in enumerate(wanted) if each > 0]
    while thirsty and left > 0:
        drop = min(left / len(thirsty), *(wanted[i] - given[i] for i in thirsty))
        for i in thirsty:
            given[i] += drop
        left -= drop * len(thirsty)
        thirsty = [i for i in thirsty if given[i] < wanted[i]]
    return given


def fluid(requests: RequestTable, system: DeviceSet, costs: CostTable, rule: str) -> list[Fraction]:
    """When each request ends, first come first served, the first free unit that can."""
    bandwidth, seconds, moved = Fraction(system.bandwidth), costs.seconds, costs.dram_bytes
    pieces = [list(range(*costs.first[model : model + 2])) for model in requests.model]
    arrival = [Fraction(each) for each in requests.arrival.tolist()]
    ends, running, now = [Fraction(0)] * len(arrival), {}, Fraction(0)
    ready: list[int] = []
    coming = list(range(len(arrival)))
    while coming or ready or running:
        for request in sorted(ready):
            for unit, kind in enumerate(system.kind):
                if unit not in running and not np.isnan(seconds[pieces[request][0], kind]):
                    piece = pieces[request].pop(0)
                    alone, bytes_ = Fraction(seconds[piece, kind]), Fraction(moved[piece, kind])
                    running[unit] = [request, Fraction(1), alone, bytes_ / alone]
                    ready.remove(request)
                    break
        wanted = [want for _, _, _, want in running.values()]
        given = shares(wanted, bandwidth, rule)
        assert sum(given) == min(sum(wanted), bandwidth)
        slowed = sum(wanted) > bandwidth and rule == "proportional"
        common = bandwidth / sum(wanted) if slowed else Fraction(1)
        rates = {
            unit: (common if rule == "proportional" or not want else share / want) / alone
            for (unit, (_, _, alone, want)), share in zip(running.items(), given, strict=True)
        }
        instants = [now + left / rates[unit] for unit, (_, left, _, _) in running.items()]
        instants += [arrival[request] for request in coming[:1]]
        then = min(instants)
        for unit, state in list(running.items()):
            state[1] -= rates[unit] * (then - now)
            if state[1] == 0:
                request = running.pop(unit)[0]
                if pieces[request]:
                    ready.append(request)
                else:
                    ends[request] = then
        now = then
        while coming and arrival[coming[0]] <= now:
            ready.append(coming.pop(0))
    return ends


def drawn(seed: int, requests: int) -> tuple[RequestTable, DeviceSet, CostTable]:
    """Times at random, so that no two things happen at one time; some segments move nothing."""
    rng = np.random.default_rng(seed)
    models = [rng.uniform(0.5, 3.0, (rng.integers(1, 4), 2)).tolist() for _ in range(3)]
    rows = sum(map(len, models))
    moved = rng.uniform(0.0, 20.0, (rows, 2)) * (rng.random((rows, 1)) < 0.8)
    costs = cost_table(models, dram_bytes=moved)
    table = request_table(np.sort(rng.uniform(0.0, 6.0, requests)).tolist(), rng.integers(0, 3, requests).tolist())
    return (
        table,
        unit_system([0, 1, *rng.integers(0, 2, 2).tolist()], bandwidth=float(rng.uniform(2.0, 15.0))),
        costs,
    )


@given(seed=st.integers(0, 2**32), requests=st.integers(1, 8), rule=RULES)
def test_ends_are_those_of_the_fluid_reference(seed: int, requests: int, rule: str) -> None:
    case = drawn(seed, requests)
    outcome = SimulatedSystem(*case, SharingRules(sharing=rule)).play(PlainOrder())
    assert outcome.end == pytest.approx([float(end) for end in fluid(*case, rule)], rel=1e-9)


@given(seed=st.integers(0, 2**32), rule=RULES)
def test_nobody_is_faster_than_alone_and_no_more_is_moved_than_there_is_bandwidth(seed: int, rule: str) -> None:
    requests, system, costs = drawn(seed, 30)
    outcome = SimulatedSystem(requests, system, costs, SharingRules(sharing=rule, logged=True)).play(PlainOrder())
    log = outcome.segments
    alone = costs.seconds[log.piece, system.kind[log.unit]]
    assert (log.end - log.begin >= alone * (1 - 1e-9)).all()
    assert len(log) == outcome.pieces == np.diff(costs.first)[requests.model].sum()
    assert outcome.bytes_moved == pytest.approx(costs.dram_bytes[log.piece, system.kind[log.unit]].sum())
    assert outcome.figures.bandwidth_use <= 1 + 1e-9
    assert outcome.served.sum() == pytest.approx((log.end - log.begin).sum())
    assert outcome.busy.sum() == pytest.approx(outcome.served.sum())


@given(seed=st.integers(0, 2**32), rule=RULES)
def test_plenty_of_bandwidth_is_as_if_nothing_were_shared(seed: int, rule: str) -> None:
    requests, system, costs = drawn(seed, 12)
    plenty = type(system)(system.names, system.kind, 1e6, system.idle_watts)
    alone = type(system)(system.names, system.kind, np.inf, system.idle_watts)
    one, other = (
        SimulatedSystem(requests, each, costs, SharingRules(sharing=rule)).play(PlainOrder())
        for each in (plenty, alone)
    )
    assert one.end.tolist() == other.end.tolist()


def test_who_computes_is_slowed_by_the_proportional_rule_alone() -> None:
    """One that wants 1 byte a second next to three that want 9 each, of 10: an equal share is more than it wants.

    The others have 3 each until it ends at 4 s, 12 of their 36 bytes, and a third of 10 each from then on.
    """
    costs = cost_table([[[4.0]], [[4.0]]], dram_bytes=[[4.0], [36.0]])
    requests, units = request_table([0.0] * 4, [0, 1, 1, 1]), unit_system([0] * 4, bandwidth=10.0)
    mended, plain = (
        SimulatedSystem(requests, units, costs, SharingRules(sharing=rule)).play(PlainOrder())
        for rule in ("roofline", "proportional")
    )
    assert mended.end[0] == 4.0
    assert mended.end[1:].tolist() == pytest.approx([4.0 + 24 / (10 / 3)] * 3)
    assert plain.end[0] == pytest.approx(4.0 * 28 / 10)
