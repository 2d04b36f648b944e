"""The simulated system as arrays, and what each column means.

A request's row in its table is its number and its slot everywhere. ``Fixed`` is never written while running and is
shared by all copies; ``World`` is all that changes. Times are float seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

INFINITY = float("inf")

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
        ("head", "i8"),  # where the ready begin in World.ready
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


class Fixed(NamedTuple):
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


class World(NamedTuple):
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
