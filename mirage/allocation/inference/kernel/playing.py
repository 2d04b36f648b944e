"""Whole runs by a compiled policy, and runs to the next period by scores that are kept.

A policy whose order among the waiting stays as it is plays on heaps (``play_in_lines``): the first is on top. So a
long queue costs its logarithm, where a policy that looks at all requests costs its length. The order is that of
``deciding``: the smallest key first, of equals the first to come; with ``late_last``, those that can keep their
deadline no more behind all others. Who is late is found when he is on top: he goes to a heap of his own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.allocation.inference.kernel import mainloop, sharing
from mirage.allocation.inference.kernel.compile import compiled, inlined
from mirage.allocation.inference.kernel.deciding import EDF, LLF, SJF, decide
from mirage.allocation.inference.kernel.layout import (
    DECIDE,
    INFINITY,
    UNTIL,
    WRONG,
    DispatchDraft,
    Look,
    SystemState,
    SystemTables,
)
from mirage.allocation.inference.kernel.mainloop import advance, go_on, is_to_decide, obey
from mirage.allocation.inference.kernel.scored import decide_scored
from mirage.allocation.inference.kernel.sharing import wanted_by_all

TIMELY, LATE = range(2)


class RequestHeaps(NamedTuple):
    """Heaps of requests, and what has been taken from them to be put back."""

    key: np.ndarray  # f8 (R,)
    heap: np.ndarray  # i4 (2, R): TIMELY, LATE
    size: np.ndarray  # i8 (2,)
    aside: np.ndarray  # i4 (R,)
    bandwidth: float  # nothing begins while so much is wanted


@compiled
def play_in_lines(fixed: SystemTables, world: SystemState, lines: RequestHeaps, code: int, late_last: bool) -> int:
    """Run to the end; what ``advance`` answered last. All that are ready are in a line, or ``world.fresh``."""
    while True:
        if world.sim[0].decided == 0 and is_to_decide(world):
            world.sim[0].decisions += 1
            _line_up(fixed, world, lines, code)
            _begin_first(fixed, world, lines, late_last)
        answer = go_on(fixed, world, INFINITY)
        if answer != DECIDE:
            return answer


@compiled
def _line_up(fixed: SystemTables, world: SystemState, lines: RequestHeaps, code: int) -> None:
    """Those who have become ready since the last decision."""
    for i in range(world.sim[0].fresh):
        request = world.fresh[i]
        piece = world.piece[request]
        key = float(request)
        if code == EDF:
            key = fixed.deadline[request]
        elif code == LLF:
            key = fixed.deadline[request] - fixed.least[piece]
        elif code == SJF:
            key = fixed.least[piece]
        lines.key[request] = key
        _push(lines, TIMELY, request)
    world.sim[0].fresh = 0


@compiled
def _begin_first(fixed: SystemTables, world: SystemState, lines: RequestHeaps, late_last: bool) -> None:
    """Each in turn goes to the free unit on which its piece ends first, while units and bandwidth are free."""
    aside = 0
    while world.sim[0].busy < world.running.shape[0] and wanted_by_all(world.drawn) < lines.bandwidth:
        request = _first(fixed, world, lines, late_last)
        if request < 0:
            break
        unit = _soonest_free(fixed, world, request)
        if unit >= 0:
            mainloop.begin(fixed, world, request, unit)
        else:
            lines.aside[aside] = request
            aside += 1
    for i in range(aside):
        _push(lines, TIMELY, lines.aside[i])
    sharing.share(fixed, world)


@compiled
def _first(fixed: SystemTables, world: SystemState, lines: RequestHeaps, late_last: bool) -> int:
    """Taken off its line; -1 where nobody waits."""
    while lines.size[TIMELY] > 0:
        request = _pop(lines, TIMELY)
        if not (late_last and world.sim[0].now + fixed.least[world.piece[request]] > fixed.deadline[request]):
            return request
        _push(lines, LATE, request)
    return _pop(lines, LATE) if lines.size[LATE] > 0 else -1


@inlined
def _soonest_free(fixed: SystemTables, world: SystemState, request: int) -> int:
    best, least = -1, INFINITY
    for unit in range(world.running.shape[0]):
        seconds = fixed.seconds[world.piece[request], fixed.kind[unit]]
        if world.running[unit] < 0 and seconds < least:
            best, least = unit, seconds
    return best


@inlined
def _is_before(lines: RequestHeaps, a: int, b: int) -> bool:
    return lines.key[a] < lines.key[b] or (lines.key[a] == lines.key[b] and a < b)


@compiled
def _push(lines: RequestHeaps, line: int, request: int) -> None:
    heap, place = lines.heap[line], lines.size[line]
    lines.size[line] += 1
    while place > 0:
        up = (place - 1) >> 1
        if not _is_before(lines, request, heap[up]):
            break
        heap[place] = heap[up]
        place = up
    heap[place] = request


@compiled
def _pop(lines: RequestHeaps, line: int) -> int:
    heap = lines.heap[line]
    lines.size[line] -= 1
    first, moved, size = heap[0], heap[lines.size[line]], lines.size[line]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(lines, heap[child + 1], heap[child]):
            child += 1
        if not _is_before(lines, heap[child], moved):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = moved
    return first


@compiled
def play(
    fixed: SystemTables, world: SystemState, draft: DispatchDraft, code: int, parameters: np.ndarray, period: float
) -> int:
    """Run to the end; what ``advance`` answered last, or WRONG for a choice that cannot be executed.

    With a period (infinity: none) it is decided again, too, whenever nothing was for so long.
    """
    while True:
        sim = world.sim[0]
        if sim.decided == 0 and is_to_decide(world):
            sim.decisions += 1
            count = decide(code, parameters, look_at(fixed, world), sim.now, sim.ready, draft)
            if not _obey(fixed, world, draft, count):
                return WRONG
        if sim.busy == 0 and sim.arrived == fixed.arrival.shape[0]:  # whoever waits now will wait indefinitely
            return advance(fixed, world, INFINITY)
        answer = go_on(fixed, world, sim.now + period)
        if answer not in (DECIDE, UNTIL):
            return answer


@compiled
def follow(
    fixed: SystemTables, world: SystemState, draft: DispatchDraft, parameters: np.ndarray, until: float
) -> int:
    """Run to ``until`` by ``world.kept``; what ``advance`` answered last, or WRONG."""
    while True:
        sim = world.sim[0]
        if sim.decided == 0 and is_to_decide(world):
            count = decide_scored(parameters, world.kept, look_at(fixed, world), sim.now, sim.ready, draft)
            if not _obey(fixed, world, draft, count):
                return WRONG
        answer = go_on(fixed, world, until)
        if answer != DECIDE:
            return answer


@inlined
def _obey(fixed: SystemTables, world: SystemState, draft: DispatchDraft, count: int) -> bool:
    """Places among the ready move as requests leave: first all are looked up."""
    head = world.sim[0].head
    for i in range(count):
        draft.ready[i] = world.ready[head + draft.ready[i]]
    return obey(fixed, world, draft.ready, draft.unit, count) < 0


@inlined
def look_at(fixed: SystemTables, world: SystemState) -> Look:
    """The system now."""
    head = world.sim[0].head
    return Look(
        ready=world.ready[head : head + world.sim[0].ready],
        arrival=fixed.arrival,
        deadline=fixed.deadline,
        weight=fixed.weight,
        model=fixed.model,
        tenant=fixed.tenant,
        number=fixed.number,
        piece=world.piece,
        ready_since=world.ready_since,
        served=world.served,
        kind=fixed.kind,
        running=world.running,
        free_at=world.free_at,
        drawn=world.drawn,
        tenant_ended=world.tenant_ended,
        tenant_kept=world.tenant_kept,
        seconds=fixed.seconds,
        compute_seconds=fixed.compute_seconds,
        joules=fixed.joules,
        dram_bytes=fixed.dram_bytes,
        remaining=fixed.remaining,
        first=fixed.first,
        least=fixed.least,
        bandwidth=fixed.config[0].bandwidth,
    )
