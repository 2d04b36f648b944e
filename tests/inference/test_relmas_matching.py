"""The matcher of kept scores against a slow one written from its description, and what must always hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relmas_looks import draft_for, random_look

from mirage.allocation.inference.kernel.scored import (
    CAUTION,
    EXAMINED,
    HOLD,
    KINDS,
    LEAVING,
    PRIORITY,
    THRIFT,
    decide_scored,
)

if TYPE_CHECKING:
    from mirage.allocation.inference.kernel.layout import Look

PLAIN = np.array([1.0, 4.0, 0.0, 0.0, 1.0, 0.0, 0.0, np.inf])
"""Without bandwidth in mind."""


def matched(look: Look, now: float, kept: np.ndarray, parameters: np.ndarray = PLAIN) -> list[tuple[int, int]]:
    draft = draft_for(look)
    count = decide_scored(parameters, kept, look, now, len(look.ready), draft)
    return list(zip(draft.ready[:count].tolist(), draft.unit[:count].tolist(), strict=True))


def nothing(look: Look) -> np.ndarray:
    return np.zeros((len(look.number), KINDS + look.seconds.shape[1]))


def left_over(
    look: Look, waiting: dict[int, float], spare: set[int], wanted: float, most: float
) -> list[tuple[int, int]]:
    """Units that no request in time needs go to others: their places among the ready requests, with their keys."""
    found = []
    while True:
        pairs = [
            (key, look.seconds[look.piece[look.ready[place]], look.kind[unit]], unit, place)
            for place, key in waiting.items()
            for unit in spare
            if not math.isnan(look.seconds[look.piece[look.ready[place]], look.kind[unit]])
            and (wanted == 0 or wanted + want(look, int(look.ready[place]), unit) <= most)
        ]
        if not pairs:
            return found
        _, _, unit, place = min(pairs)
        wanted += want(look, int(look.ready[place]), unit)
        spare.remove(unit)
        del waiting[place]
        found.append((place, unit))


def want(look: Look, slot: int, unit: int) -> float:
    """Bytes a second."""
    piece, kind = look.piece[slot], look.kind[unit]
    return float(look.dram_bytes[piece, kind] / look.seconds[piece, kind])


def slowly(look: Look, now: float, kept: np.ndarray, parameters: np.ndarray) -> list[tuple[int, int]]:
    """From the module's description alone, with lists and sorting."""
    density, reach, hopping, crowding, holding, thrift, margin, leaving = parameters
    wanted = sum(look.drawn)
    stretch = 1 + crowding * max(wanted / look.bandwidth - 1, 0)
    available = {unit: max(look.free_at[unit], now) for unit in range(len(look.kind))}
    is_free = {unit: look.running[unit] < 0 for unit in available}

    def key(slot: int, piece: int, when: float) -> tuple[int, float]:
        least = look.least[piece] / look.weight[slot]
        if look.deadline[slot] - when < look.least[piece]:
            return 1, least
        return 0, look.deadline[slot] + (density - reach * kept[slot, PRIORITY]) * least

    def left(slot: int, unit: int) -> float:
        piece, kind = look.piece[slot], look.kind[unit]
        alone, stays = look.seconds[piece, kind], look.remaining[piece, kind]
        hops = alone if is_last(slot) else alone + look.least[piece + 1]
        return stretch * (hops if math.isnan(stays) else stays + hopping * (hops - stays))

    def is_last(slot: int) -> bool:
        return bool(look.piece[slot] + 1 == look.first[look.model[slot] + 1])

    entries = [(key(s, look.piece[s], now), 1, place, int(s)) for place, s in enumerate(look.ready)]
    for unit, slot in enumerate(look.running):
        if slot >= 0 and not is_last(slot):
            entries.append((key(slot, look.piece[slot] + 1, look.free_at[unit]), 0, unit, int(slot)))
    found, others = [], []
    for (late, sort), ready, place, slot in sorted(entries):
        if not ready:
            rest = look.remaining[look.piece[slot] + 1, look.kind[place]]
            available[place] += 0.0 if late or math.isnan(rest) else stretch * holding * rest
            continue
        times = {unit: left(slot, unit) for unit in available}
        needed = 1 + max(margin + kept[slot, CAUTION], 0)
        fits = {u: t for u, t in times.items() if available[u] + needed * t <= look.deadline[slot]}
        if late or not fits:
            others.append((look.least[look.piece[slot]] / look.weight[slot] if not late else sort, place))
            continue

        def cost(unit: int) -> float:
            piece, kind = look.piece[slot], look.kind[unit]  # noqa: B023
            price = thrift * look.dram_bytes[piece, kind] / look.bandwidth
            favour = (math.exp(-kept[slot, KINDS + kind]) - 1) * stretch * look.seconds[piece, kind]  # noqa: B023
            return available[unit] - now + fits[unit] + price + favour  # noqa: B023

        best = min(fits, key=cost)
        if is_free[best] and available[best] <= now:
            if wanted > 0 and kept[slot, HOLD] * (wanted + want(look, slot, best)) > look.bandwidth:
                continue
            wanted += want(look, slot, best)
            found.append((place, best))
        alone = look.seconds[look.piece[slot], look.kind[best]]
        available[best] += stretch * (alone + holding * (fits[best] / stretch - alone))
    spare = {unit for unit in available if is_free[unit] and available[unit] <= now}
    waiting = {place: key for key, place in others}
    return [*found, *left_over(look, waiting, spare, wanted, leaving * look.bandwidth)]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 5),
    st.tuples(
        *(st.floats(0, most) for most in (5, 8, 1, 2, 3, 20, 1)), st.one_of(st.floats(0, 2), st.just(math.inf))
    ),
)
def test_matches_as_described(seed: int, ready: int, units: int, parameters: tuple[float, ...]) -> None:
    look, now = random_look(seed, ready=ready, units=max(units, math.ceil((ready + units) / EXAMINED)))
    kept = np.random.default_rng(seed).uniform(-1, 1, nothing(look).shape)
    found = matched(look, now, kept, np.array(parameters))
    assert sorted(found) == sorted(slowly(look, now, kept, np.array(parameters)))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 30), st.integers(1, 6))
def test_nobody_gets_what_is_not_free(seed: int, ready: int, units: int) -> None:
    look, now = random_look(seed, ready=ready, units=units)
    found = matched(look, now, nothing(look))
    assert len({row for row, _ in found}) == len({unit for _, unit in found}) == len(found)
    for row, unit in found:
        assert look.running[unit] < 0
        assert not math.isnan(look.seconds[look.piece[look.ready[row]], look.kind[unit]])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 12))
def test_an_idle_system_answers_somebody(seed: int, ready: int) -> None:
    look, now = random_look(seed, ready=ready)
    look = look._replace(running=np.full(len(look.kind), -1), free_at=np.full(len(look.kind), now - 1))
    able = ~np.isnan(look.seconds[look.piece[look.ready]][:, look.kind]).all(axis=1)
    assert bool(matched(look, now, nothing(look))) == able.any()


@pytest.mark.parametrize(("priority", "first"), [(0.0, 0), (1.0, 1)])
def test_a_priority_moves_its_request_forward(priority: float, first: int) -> None:
    look, now = random_look(1, ready=2, units=1, kinds=1)
    look = look._replace(
        running=np.array([-1]), free_at=np.array([0.0]), weight=np.ones(3), deadline=np.array([20.0, 21.0, 0.0])
    )
    look.seconds[:] = 1.0
    look.remaining[:] = 1.0
    look.least[:] = 1.0
    kept = nothing(look)
    kept[1, PRIORITY] = priority
    assert matched(look, now, kept) == [(first, 0)]


def test_an_affinity_chooses_between_kinds() -> None:
    look, now = random_look(1, ready=1, units=2, kinds=2)
    look = look._replace(
        running=np.array([-1, -1]),
        free_at=np.zeros(2),
        deadline=np.full(3, 50.0),
        kind=np.arange(2, dtype=np.int32),
    )
    look.seconds[:] = 1.0
    look.remaining[:] = 1.0
    kept = nothing(look)
    assert matched(look, now, kept) == [(0, 0)]
    kept[0, KINDS + 1] = 0.1
    assert matched(look, now, kept) == [(0, 1)]


def test_bytes_have_a_price() -> None:
    look, now = random_look(1, ready=1, units=2, kinds=2)
    look = look._replace(
        running=np.array([-1, -1]),
        free_at=np.zeros(2),
        deadline=np.full(3, 50.0),
        kind=np.arange(2, dtype=np.int32),
    )
    look.seconds[:] = look.remaining[:] = [1.0, 1.1]
    look.dram_bytes[:] = [0.4, 0.2]  # of 2 bytes a second
    thrifty = PLAIN.copy()
    for thrift, unit in ((0.0, 0), (0.9, 0), (1.1, 1)):
        thrifty[THRIFT] = thrift
        assert matched(look, now, nothing(look), thrifty) == [(0, unit)]


@pytest.mark.parametrize(("hold", "begins"), [(0.0, True), (0.9, True), (1.1, False)])
def test_who_is_to_hold_back_waits_for_bandwidth(hold: float, begins: bool) -> None:
    look, now = random_look(1, ready=1, units=2, kinds=1)
    look = look._replace(
        running=np.array([1, -1]),
        free_at=np.array([now + 5, 0.0]),
        drawn=np.array([1.0, 0.0]),
        deadline=np.full(3, 50.0),
    )
    look.seconds[:] = look.remaining[:] = look.dram_bytes[:] = 1.0  # with it all of 2 bytes per second are used
    kept = nothing(look)
    kept[0, HOLD] = hold
    assert bool(matched(look, now, kept)) == begins
    kept[0, HOLD], look.drawn[0] = 10.0, 0.0
    assert matched(look, now, kept) == [(0, 1)]  # no other request needs any


@pytest.mark.parametrize("caution", [0.0, 0.5])
def test_caution_lets_others_pass_who_are_surer(caution: float) -> None:
    look, now = random_look(1, ready=2, units=1, kinds=1)
    look = look._replace(
        running=np.array([-1]), free_at=np.array([0.0]), weight=np.ones(3), deadline=np.array([9.4, 12.0, 0.0])
    )
    look.seconds[:] = look.remaining[:] = look.least[:] = 2.0
    kept = nothing(look)
    kept[:, CAUTION] = caution
    assert matched(look, now, kept) == [(1 if caution else 0, 0)]


def test_late_ones_leave_the_bandwidth_to_others() -> None:
    look, now = random_look(1, ready=1, units=2, kinds=1)
    look = look._replace(
        running=np.array([1, -1]),
        free_at=np.array([now + 5, 0.0]),
        drawn=np.array([1.0, 0.0]),
        deadline=np.zeros(3),
    )
    look.seconds[:] = look.remaining[:] = look.least[:] = look.dram_bytes[:] = 1.0
    leaving = PLAIN.copy()
    for part, found in ((1.1, [(0, 1)]), (0.9, [])):
        leaving[LEAVING] = part
        assert matched(look, now, nothing(look), leaving) == found
    look.drawn[0] = 0.0
    assert matched(look, now, nothing(look), leaving) == [(0, 1)]
