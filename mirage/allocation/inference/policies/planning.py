"""Look-ahead policies: they consider the whole rest of every request, not only its next segment."""

from __future__ import annotations

from mirage.allocation.inference.kernel import deciding
from mirage.allocation.inference.policies.compiled import CompiledPolicy
from mirage.allocation.inference.registry import UnknownRequestPolicy
from mirage.domain.errors import BadSpelling
from mirage.slurm.duration import parse_fine

_USUAL = "5ms"


def triage() -> CompiledPolicy:
    """Ours: admits requests that can still be saved, drops the largest first (Moore, 1968), looks ahead on every
    unit.

    Each unit has a queue, by deadline, with all that is left of each request; see ``kernel.deciding_triage``.
    Units that would idle take segments that delay no queue, then the requests that cannot be saved, the shortest
    first.
    """
    return CompiledPolicy("triage", deciding.TRIAGE, {})


def magma(options: str = _USUAL) -> CompiledPolicy:
    """MAGMA-like (Kao & Krishna, HPCA 2022): a genetic search over order and unit of the waiting requests.

    Known: two genomes, of accelerators and of priorities; the crossovers of one genome, of both, and of all that
    one accelerator has; mutation; offline, for the throughput of a batch. Ours: the batch is the ready window
    (32, by deadline), searched again each period (``magma:2ms``; 5 ms) and when a request has no plan; the fitness
    is the weight of the requests in time, and little for ending early; 16 individuals, one of them greedy, 8
    generations, seeded (``magma:2ms+7``).
    """
    period, _, seed = options.partition("+")
    refused = UnknownRequestPolicy(f"magma: {options!r} is not a period and seed, such as 5ms or 5ms+7")
    if not (seed or "0").isdecimal():
        raise refused
    try:
        own = {deciding.OWN: parse_fine(period), deciding.OWN + 1: float(seed or 0)}
    except BadSpelling:
        raise refused from None
    name = "magma" if options == _USUAL else f"magma:{options}"
    return CompiledPolicy(name, deciding.MAGMA, own, remembers=True)
