"""The arrays of the kernel: the simulated system, and what compiled policies read and write.

A request's row in its table is its number and its slot everywhere. ``SystemTables`` is never written while running
and is shared by all copies; ``SystemState`` is all that changes. Times are float seconds.

``Look`` has the columns of a ``SystemView``; ``DispatchDraft`` is working memory. Requests stand in slots (S): the
simulated system uses the rows of its request table, the gateway the rows of its view. A slot keeps its meaning for
as long as its request lives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

INFINITY = float("inf")


class Look(NamedTuple):
    """The system at one time; the names mean what they mean in ``SystemView``. Policies change nothing here."""

    ready: np.ndarray  # i8 (at least P,): slots of the ready requests, in order of arrival
    arrival: np.ndarray  # f8 (S,)
    deadline: np.ndarray  # f8 (S,)
    weight: np.ndarray  # f8 (S,)
    model: np.ndarray  # i4 (S,)
    tenant: np.ndarray  # i4 (S,)
    number: np.ndarray  # i8 (S,): of the request
    piece: np.ndarray  # i4 (S,): the next piece of a ready request, the present one of a running one
    ready_since: np.ndarray  # f8 (S,)
    served: np.ndarray  # f8 (S,)
    kind: np.ndarray  # i4 (U,)
    running: np.ndarray  # i8 (U,): slot of the request on each unit; -1 where it is free
    free_at: np.ndarray  # f8 (U,)
    drawn: np.ndarray  # f8 (U,)
    tenant_ended: np.ndarray  # i8 (T,)
    tenant_kept: np.ndarray  # i8 (T,)
    seconds: np.ndarray  # f8 (L, K)
    compute_seconds: np.ndarray  # f8 (L, K)
    joules: np.ndarray  # f8 (L, K)
    dram_bytes: np.ndarray  # f8 (L, K)
    remaining: np.ndarray  # f8 (L, K): to the end of the model, all of it on one kind
    first: np.ndarray  # i4 (M + 1,): where each model's pieces begin
    least: np.ndarray  # f8 (L,): to the end of the model, each piece on the kind that is fastest for it
    bandwidth: float  # bytes a second


class DispatchDraft(NamedTuple):
    """Where policies write. ``memory`` and ``state`` are kept between calls, zero at the beginning."""

    ready: np.ndarray  # i4 (U,): the answer: places in ``Look.ready``
    unit: np.ndarray  # i4 (U,): the answer: units
    key: np.ndarray  # f8 (S,)
    late: np.ndarray  # i1 (S,)
    order: np.ndarray  # i4 (S,)
    available: np.ndarray  # f8 (U,)
    start: np.ndarray  # f8 (at least S, and U)
    memory: np.ndarray  # f8 (S, MEMORY)
    state: np.ndarray  # f8 (STATE,)
    genes: np.ndarray  # f8 (POPULATION, 2, WINDOW): of genetic search
    fitness: np.ndarray  # f8 (POPULATION,)


MEMORY = 2
STATE = 8
POPULATION = 16
WINDOW = 32


# What ``advance`` and its callers answer. UNTIL: nothing is to be decided before the time asked for. STUCK:
# requests wait, nothing runs, and nothing more comes. WRONG: a dispatch that cannot be executed.
OVER, DECIDE, UNTIL, NEED_SPACE, STUCK, WRONG = range(6)

# How bandwidth is shared; see ``sharing``.
NOT_SHARED, PROPORTIONAL, ROOFLINE = range(3)

CONFIG = np.dtype(
    [
        ("bandwidth", "f8"),
        ("sharing", "i8"),
        ("decision_seconds", "f8"),
        ("logged", "i8"),
    ],
    align=True,
)
SIM = np.dtype(
    [
        ("now", "f8"),
        ("arrived", "i8"),  # requests that have come
        ("ended", "i8"),
        ("head", "i8"),  # where the ready begin in SystemState.ready
        ("ready", "i8"),
        ("busy", "i8"),  # units
        ("pieces", "i8"),  # ended
        ("decisions", "i8"),
        ("bytes", "f8"),  # moved by pieces that ended
        ("log", "i8"),
        ("decided", "i8"),  # 1: all that could be at this time; for whole runs, which continue when given space
        ("fresh", "i8"),
    ],
    align=True,
)
UNIT = np.dtype(
    [
        ("began", "f8"),
        ("since", "f8"),  # up to when ``left`` is true
        ("left", "f8"),  # of the piece: 1 at its beginning
        ("rate", "f8"),  # of the piece a second
        ("alone", "f8"),  # the rate with all the bandwidth that it wants
        ("share", "f8"),  # bytes a second that it is given
        ("busy", "f8"),  # seconds so far, the present piece not counted
        ("pieces", "i8"),
    ],
    align=True,
)
SEGMENT = np.dtype(
    [("request", "i8"), ("piece", "i8"), ("unit", "i8"), ("begin", "f8"), ("end", "f8")], align=True
)


class SystemTables(NamedTuple):
    """Read-only while running."""

    config: np.ndarray  # CONFIG (1,)
    arrival: np.ndarray  # f8 (R,)
    deadline: np.ndarray  # f8 (R,)
    weight: np.ndarray  # f8 (R,)
    model: np.ndarray  # i4 (R,)
    tenant: np.ndarray  # i4 (R,)
    number: np.ndarray  # i8 (R,): 0, 1, 2, ...
    first: np.ndarray  # i4 (M + 1,)
    kind: np.ndarray  # i4 (U,)
    seconds: np.ndarray  # f8 (L, K)
    compute_seconds: np.ndarray  # f8 (L, K)
    joules: np.ndarray  # f8 (L, K)
    dram_bytes: np.ndarray  # f8 (L, K)
    remaining: np.ndarray  # f8 (L, K)
    least: np.ndarray  # f8 (L,)


class SystemState(NamedTuple):
    """All that changes."""

    sim: np.ndarray  # SIM (1,)
    piece: np.ndarray  # i4 (R,): the next one, or the one that runs; behind the model's last when all is done
    ready_since: np.ndarray  # f8 (R,)
    served: np.ndarray  # f8 (R,): seconds on units, the present piece not counted
    begin: np.ndarray  # f8 (R,): of the first piece; NaN before
    end: np.ndarray  # f8 (R,): NaN before
    energy: np.ndarray  # f8 (R,): joules of the pieces that ended
    ready: np.ndarray  # i8: numbers of the ready, ascending, from ``head``; more room than there are
    running: np.ndarray  # i8 (U,)
    free_at: np.ndarray  # f8 (U,)
    drawn: np.ndarray  # f8 (U,): bytes a second wanted
    units: np.ndarray  # UNIT (U,)
    tenant_ended: np.ndarray  # i8 (T,)
    tenant_kept: np.ndarray  # i8 (T,)
    log: np.ndarray  # SEGMENT
    fresh: np.ndarray  # i4 (R,): who became ready since somebody looked; of no length where nobody does
    kept: np.ndarray  # f8 (R, 3 + K): scores; no rows before there are any
    coming: np.ndarray  # f8 (M, 3 + K): scores that requests of each model begin with
