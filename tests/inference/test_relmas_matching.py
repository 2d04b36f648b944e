"""The matcher of kept scores against a slow one written from its description, and what must always hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relmas_looks import draft_for, random_look

from mirage.allocation.inference.kernel.scored import EXAMINED, decide_scored

if TYPE_CHECKING:
    from mirage.allocation.inference.kernel.look import Look

PLAIN = np.array([1.0, 4.0, 0.0, 0.0, 1.0])


def matched(look: Look, now: float, kept: np.ndarray, parameters: np.ndarray = PLAIN) -> list[tuple[int, int]]:
    draft = draft_for(look)
    count = decide_scored(parameters, kept, look, now, len(look.ready), draft)
    return list(zip(draft.ready[:count].tolist(), draft.unit[:count].tolist(), strict=True))


def nothing(look: Look) -> np.ndarray:
    return np.zeros((len(look.number), 1 + len(look.kind)))


def slowly(look: Look, now: float, kept: np.ndarray, parameters: np.ndarray) -> list[tuple[int, int]]:
    """From the module's description alone, with lists and sorting."""
    density, reach, hopping, crowding, holding = parameters
    stretch = 1 + crowding * max(sum(look.drawn) / look.bandwidth - 1, 0)
    available = {unit: max(look.free_at[unit], now) for unit in range(len(look.kind))}
    is_free = {unit: look.running[unit] < 0 for unit in available}

    def key(slot: int, piece: int, when: float) -> tuple[int, float]:
        least = look.least[piece] / look.weight[slot]
        if look.deadline[slot] - when < look.least[piece]:
            return 1, least
        return 0, look.deadline[slot] + (density - reach * kept[slot, 0]) * least

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
        fits = {u: t for u, t in times.items() if available[u] + t <= look.deadline[slot]}
        if late or not fits:
            others.append((look.least[look.piece[slot]] / look.weight[slot] if not late else sort, place))
            continue
        best = min(fits, key=lambda u: available[u] - now + fits[u] * math.exp(-kept[slot, 1 + u]))
        if is_free[best] and available[best] <= now:
            found.append((place, best))
        alone = look.seconds[look.piece[slot], look.kind[best]]
        available[best] += stretch * (alone + holding * (fits[best] / stretch - alone))
    spare = {unit for unit in available if is_free[unit] and available[unit] <= now}
    for _, place in sorted(others):
        piece = look.piece[look.ready[place]]
        able = [unit for unit in sorted(spare) if not math.isnan(look.seconds[piece, look.kind[unit]])]
        if able:
            unit = min(able, key=lambda one: look.seconds[piece, look.kind[one]])
            spare.remove(unit)
            found.append((place, unit))
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 12),
    st.integers(1, 5),
    st.tuples(st.floats(0, 5), st.floats(0, 8), st.floats(0, 1), st.floats(0, 2), st.floats(0, 3)),
)
def test_matches_as_described(seed: int, ready: int, units: int, parameters: tuple[float, ...]) -> None:
    look, now = random_look(seed, ready=ready, units=max(units, math.ceil((ready + units) / EXAMINED)))
    kept = np.random.default_rng(seed).uniform(-1, 1, (len(look.number), 1 + len(look.kind)))
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
    kept[1, 0] = priority
    assert matched(look, now, kept) == [(first, 0)]


def test_an_affinity_chooses_between_equal_units() -> None:
    look, now = random_look(1, ready=1, units=2, kinds=1)
    look = look._replace(running=np.array([-1, -1]), free_at=np.zeros(2), deadline=np.full(3, 50.0))
    look.seconds[:] = 1.0
    look.remaining[:] = 1.0
    kept = nothing(look)
    assert matched(look, now, kept) == [(0, 0)]
    kept[0, 2] = 0.1
    assert matched(look, now, kept) == [(0, 1)]
