"""Policies by rule, look-ahead policies, and the options of their names.

Look-ahead policies (``triage``, ``magma``) consider the whole rest of every request, not only its next segment.
Options of the others follow a colon, joined by ``+``: ``edf:late-last``, ``llf:wait+late-last``.

``late-last``
    Requests that can no longer meet their deadline, even alone and with each segment on its fastest kind, come
    behind all others, in the same order as before. Without it, a policy by deadlines spends its units on lost
    requests once there is too much work. Such requests are answered when there is time, at the latest when no
    other waits.
``wait``
    A request goes to the unit on which its next segment ends first, even a busy one, and then waits for it.
    Without it, it goes to the free unit on which the segment ends first.
``spare``
    No request begins while the running ones use all of the shared bandwidth; units stay free meanwhile.
    Without it, segments on all units slow each other down, urgent or not, and are late together. (Bandwidth is
    shared equally among those that need much: a running request cannot be preferred, but the policy can choose
    what else begins. MoCA, HPCA 2023, throttles running requests instead, which these units cannot.)
"""

from __future__ import annotations

from mirage.allocation.inference.compiled_policies import CompiledPolicy
from mirage.allocation.inference.kernel import deciding
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


_OPTIONS = {"late-last": deciding.LATE_LAST, "spare": deciding.SPARE, "wait": deciding.WAIT}


def fcfs(options: str = "") -> CompiledPolicy:
    """First come, first served: by arrival, also between the segments of a request."""
    return _ordering("fcfs", deciding.FCFS, options)


def lft(options: str = "") -> CompiledPolicy:
    """Least finish time: by arrival, each to the unit on which its next segment ends first, busy ones too.

    The same as ``fcfs:wait``: the greedy list scheduler, the usual baseline of heterogeneous schedulers.
    """
    policy = _ordering("lft", deciding.FCFS, options, ("late-last", "spare"))
    policy.parameters[deciding.WAIT] = 1.0
    return policy


def edf(options: str = "") -> CompiledPolicy:
    """Earliest deadline first. Optimal on one preemptive unit while all can be kept (Dertouzos, 1974)."""
    return _ordering("edf", deciding.EDF, options)


def llf(options: str = "") -> CompiledPolicy:
    """Least laxity first: deadline - now - seconds left, each segment on its fastest kind (Mok, 1983)."""
    return _ordering("llf", deciding.LLF, options)


def sjf(options: str = "") -> CompiledPolicy:
    """Shortest job first, by the seconds left, each segment on its fastest kind: SRPT between segments."""
    return _ordering("sjf", deciding.SJF, options)


def prema(options: str = "") -> CompiledPolicy:
    """PREMA (Choi & Rhu, HPCA 2020): of the requests with the most tokens, the one with the least left.

    Known: tokens begin as the priority (1, 3, 9) and grow by priority x normalised slowdown; candidates are those
    over the largest of 9, 3, 1 that the most tokens reach; the shortest estimated job of them runs. Ours:
    candidates *at* the threshold as well (the paper's ``>`` selects none at the beginning); tokens in
    closed form, priority x (1 + waited / isolated), so that they do not depend on how often they are added up;
    the weight as priority; where weights below 1 leave all tokens below 1, the threshold is the most tokens.
    """
    return _ordering("prema", deciding.PREMA, options)


def random(options: str = "") -> CompiledPolicy:
    """At random, seeded (``random:7``): numbers drawn only from the request, its segment and the seed."""
    seed, policy = (
        options or "0",
        CompiledPolicy(f"random:{options}" if options else "random", deciding.RANDOM, {}),
    )
    if not seed.isdecimal():
        raise UnknownRequestPolicy(f"random: the seed must be an integer of at least 0, not {options!r}")
    policy.parameters[deciding.OWN] = int(seed)
    return policy


def herald(options: str = "") -> CompiledPolicy:
    """Herald-like (Kwon et al., HPCA 2021): layers to the sub-accelerator that suits them, unless it is
    overloaded.

    Known: layers are given to accelerators by their dataflow preference, the load is balanced, idle time removed.
    Ours: online; by arrival; of the units that end the segment within 1.5 x the least time, including the waiting
    time of busy ones, the one with the least product of energy and delay.
    """
    policy = _ordering("herald", deciding.HERALD, options, ("late-last",))
    policy.parameters[deciding.OWN] = 0.5
    return policy


def planaria(options: str = "") -> CompiledPolicy:
    """Planaria-like (Ghodrati et al., MICRO 2020): the most ``priority / (slack x resources)`` first.

    Known: the score, and that a request is given the fewest subarrays that meet its deadline. Ours, since units do
    not split: the slowest free unit on which the request, staying there, is in time; resources are its speed
    next to the fastest conceivable unit. Slack is at least a thousandth of what is left: late requests come
    first, the shortest before the others, where a negative slack would have put them last, the nearly early
    behind the latest.
    """
    return _ordering("planaria", deciding.PLANARIA, options, ("late-last",))


def dream(options: str = "") -> CompiledPolicy:
    """DREAM's MapScore (Kim et al., ASPLOS 2023; first SDRM3), the highest over requests and free units.

    Known, from a re-implementation (DySta): min(1, left / slack) + alpha x idle / next latency. Ours: urgency is 1
    where the deadline has passed, not negative, which would let late requests sink by a change of sign; it is
    multiplied with the preference for the unit (least seconds of the segment / seconds there); beta x the thrift
    of the unit (least energy / energy there) is added; alpha = beta = 0.1, not tuned.
    """
    policy = _ordering("dream", deciding.DREAM, options, ("late-last",))
    policy.parameters[deciding.OWN] = policy.parameters[deciding.OWN + 1] = 0.1
    return policy


def _ordering(
    name: str, code: int, options: str, known: tuple[str, ...] = ("late-last", "spare", "wait")
) -> CompiledPolicy:
    parameters = {}
    for option in options.split("+") if options else ():
        if option not in known:
            said = ", ".join(known)
            raise UnknownRequestPolicy(f"{name}: unknown option {option!r} (choose from {said}, joined by +)")
        parameters[_OPTIONS[option]] = 1.0
    return CompiledPolicy(f"{name}:{options}" if options else name, code, parameters)
