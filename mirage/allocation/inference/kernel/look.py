"""What compiled policies look at and write to: the columns of a ``SystemView``, and working memory.

Requests stand in slots (S): the simulated system uses the rows of its request table, the gateway the rows of its
view. A slot keeps its meaning for as long as its request lives.
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


class Draft(NamedTuple):
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
