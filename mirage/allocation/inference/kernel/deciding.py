"""Compiled policies, told apart by a number: what begins now, and on which unit."""

from __future__ import annotations

import numpy as np

from mirage.allocation.inference.kernel import deciding_genes as genes
from mirage.allocation.inference.kernel import deciding_keys as keys
from mirage.allocation.inference.kernel import deciding_pairs as pairs
from mirage.allocation.inference.kernel import deciding_triage as triage
from mirage.allocation.inference.kernel import deciding_units as units
from mirage.allocation.inference.kernel.compile import compiled
from mirage.allocation.inference.kernel.look import INFINITY, Draft, Look

FCFS, EDF, LLF, SJF, PREMA, RANDOM, HERALD, PLANARIA, DREAM, MAGMA, TRIAGE = range(11)

# Places in ``parameters`` that mean the same to all policies; the rest is each one's own.
LATE_LAST, WAIT, SPARE, OWN = range(4)
PARAMETERS = 8


@compiled
def decide(code: int, parameters: np.ndarray, look: Look, now: float, count: int, draft: Draft) -> int:
    """How many requests begin their next piece now; which and where is in ``draft.ready`` and ``draft.unit``.

    ``count``: how many are ready, P. Nothing of ``look`` is changed.
    """
    if count == 0:
        return 0
    if code == TRIAGE:
        return triage.triage(look, now, count, draft)
    if code == MAGMA:
        return genes.magma(look, now, count, draft, parameters[OWN], parameters[OWN + 1])
    keys.mark_late(look, now, count, draft, parameters[LATE_LAST] > 0.0)
    if code in (PLANARIA, DREAM):
        alpha, beta = parameters[OWN], parameters[OWN + 1]
        return pairs.by_score(look, now, count, draft, code == DREAM, alpha, beta)
    _order(code, parameters, look, now, count, draft)
    if code == HERALD:
        return pairs.herald(look, now, count, draft, parameters[OWN])
    bandwidth = look.bandwidth if parameters[SPARE] > 0.0 else INFINITY
    if parameters[WAIT] > 0.0:
        return units.assign_waiting(look, now, count, draft, bandwidth)
    return units.assign(look, now, count, draft, bandwidth)


@compiled
def _order(code: int, parameters: np.ndarray, look: Look, now: float, count: int, draft: Draft) -> None:
    if code == EDF:
        keys.deadlines(look, count, draft)
    elif code == LLF:
        keys.laxities(look, count, draft)
    elif code == SJF:
        keys.remainders(look, count, draft)
    elif code == PREMA:
        keys.tokens(look, now, count, draft)
    elif code == RANDOM:
        keys.chances(look, count, draft, parameters[OWN])
    else:
        keys.arrivals(look, count, draft)
