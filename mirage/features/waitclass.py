"""Which recent waits say something about a job: those of jobs like it, in its partition.

Like it are those of the same GRES, QOS and account and of the same classes of size and time limit. Where these are
few, more of these criteria are left out, in a fixed order (``LADDER``); the partition never is.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.job import NO_GRES, gres_class
from mirage.slurm.jobrequest import said_by_options

if TYPE_CHECKING:
    from mirage.domain.decision import RecentWaits
    from mirage.domain.job import JobRequest
    from mirage.domain.jobtable import Names

Int64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

NODE_BOUNDS = (1, 4, 16, 64, 256)
"""Upper bounds of the size classes, in nodes; a last class has none."""

LIMIT_BOUNDS = (3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600)
"""Upper bounds of the limit classes, in seconds; a last class has none."""

GRES_BOUNDS = (1, 2, 4, 8)
"""Upper bounds of the classes of GRES on a node, part of the size; a last class has none."""

SEARCHED = 1_000
"""Jobs started last in the partition among which those of the class are looked for."""

USED = 100
"""Latest waits that count: the queue of last month says little about today's."""

ENOUGH = 20
"""With fewer of a class, a wider one counts; failing that, all of the partition."""


class GresDemand(Enum):
    """How much of the generic resources is asked for."""

    SAME = "same kinds and types"
    ANY_TYPE = "same kinds; a type that one of the two leaves open may be any"
    ANY = "any or none"


@dataclass(frozen=True, slots=True)
class Rung:
    """One class: what jobs must have in common with the request."""

    gres: GresDemand = GresDemand.ANY
    qos: bool = False
    account: bool = False
    size: bool = False
    limit: bool = False


_FINER = ((True, True, True), (False, True, True), (False, False, True), (False, False, False))
"""Account, size, limit."""
LADDER = tuple(Rung(gres, qos, *finer) for gres, qos, finer in product(GresDemand, (True, False), _FINER))
"""From the narrowest class to all of the partition: what decides most about a wait is left out last.

Left out are in turn the account, size, limit, QOS, GRES type, GRES. Other GRES are other nodes, so another queue.
Another QOS has a different priority, or separate limits. Among equals the limit decides what backfill can start,
then the size. The account counts by its fair share, and few jobs of one account start in the same hours. Where QOS
or GRES are left out, account, size and limit are used again, because waits that were kept without the former have
these.
"""


@dataclass(frozen=True, slots=True)
class ClassWaits:
    """The waits that count for a job."""

    wait: Int64
    """Seconds, oldest start first."""
    basis: str
    """How many waits of which class, for the reader."""
    rung: Rung


def describe_waits(count: int, partition: str, *further: str) -> str:
    """Such as ``12 waits of partition v100, any size``."""
    of = f" of partition {partition}" if partition else ""
    return ", ".join((f"{count} {'wait' if count == 1 else 'waits'}{of}", *further))


def nothing_started(recent: RecentWaits) -> str:
    """Why there is no forecast where there are no waits."""
    if recent.partition:
        return f"no job of partition {recent.partition} has started yet"
    return "no job has started yet, or it is not known in which partition such a job would run: name one"


def class_waits(recent: RecentWaits, request: JobRequest) -> ClassWaits:
    """The latest waits of jobs like ``request``, of the narrowest class that has enough of them.

    Never of another partition's: those of ``recent`` are all of one.
    """
    likeness = _Likeness(recent, request)
    for rung in LADDER[:-1]:
        member = likeness.members(rung)
        if member is not None and np.count_nonzero(member) >= ENOUGH:
            return likeness.found(rung, recent.wait[member])
    return likeness.found(LADDER[-1], recent.wait)


def gres_of(request: JobRequest) -> tuple[str, int] | None:
    """The class of a request's generic resources; ``None`` where options ask for GPUs in a way not understood."""
    named = any(name.partition(":")[0] == "gpu" for name, _ in request.gres_per_node)
    if not named and "gres_per_node" in said_by_options(request):
        return None
    return gres_class(request.gres_per_node)


class _Likeness:
    """What each of the recent jobs has in common with a request; compared when it is asked for, and once."""

    def __init__(self, recent: RecentWaits, request: JobRequest) -> None:
        self._recent, self._request = recent, request
        self._account = request.account or recent.usual_account
        self._qos = request.qos or recent.usual_qos
        self._gres = gres_of(request)

    def members(self, rung: Rung) -> Mask | None:
        """Who is of the class; ``None`` where it is not known what that is, or it is that of the rung before."""
        if rung.gres is GresDemand.ANY_TYPE and not self._opens_types:
            return None
        parts: list[Mask | None] = []
        if rung.gres is not GresDemand.ANY:
            parts.append(self._same_gres if rung.gres is GresDemand.SAME else self._similar_gres)
        if rung.qos:
            parts.append(self._same_qos)
        if rung.account:
            parts.append(self._same_account)
        if rung.size:
            parts.append(self._same_nodes)
            parts += [self._same_gres_count] if rung.gres is not GresDemand.ANY else []
        if rung.limit:
            parts.append(self._same_limit)
        known = [part for part in parts if part is not None]
        return np.logical_and.reduce(known) if len(known) == len(parts) and parts else None

    def found(self, rung: Rung, wait: Int64) -> ClassWaits:
        """The latest of a class's waits, with what they are of."""
        wait = wait[-USED:]
        basis = describe_waits(len(wait), self._recent.partition, *self._narrowed(rung), *self._widened(rung))
        return ClassWaits(wait, basis, rung)

    def _narrowed(self, rung: Rung) -> list[str]:
        kinds = self._gres[0] if self._gres is not None else ""
        shared = "no GRES" if kinds == NO_GRES else f"GRES {kinds}"
        return [
            *({GresDemand.SAME: [shared], GresDemand.ANY_TYPE: [f"{shared} of any type"]}.get(rung.gres, [])),
            *([f"QOS {self._qos}"] if rung.qos else []),
            *([f"account {self._account}"] if rung.account else []),
        ]

    def _widened(self, rung: Rung) -> list[str]:
        """Return the criteria left out, if jobs differ in them."""
        traits, asked = self._recent.traits, self._gres is None or self._gres[0] != NO_GRES
        left_out = {
            "GRES": rung.gres is GresDemand.ANY and (asked or _any_known(traits.gres)),
            "QOS": not rung.qos and bool(self._qos or _any_known(traits.qos)),
            "account": not rung.account and bool(self._account or _any_known(traits.account)),
            "size": not rung.size,
            "limit": not rung.limit,
        }
        return [f"any {name}" for name, is_so in left_out.items() if is_so]

    @cached_property
    def _same_limit(self) -> Mask:
        return _within(self._recent.limit, self._request.limit, LIMIT_BOUNDS)

    @cached_property
    def _same_nodes(self) -> Mask:
        return _within(self._recent.nodes, self._request.nodes, NODE_BOUNDS)

    @cached_property
    def _same_qos(self) -> Mask | None:
        return _equal(self._recent.traits.qos, self._qos)

    @cached_property
    def _same_account(self) -> Mask | None:
        return _equal(self._recent.traits.account, self._account)

    @cached_property
    def _same_gres(self) -> Mask | None:
        return _equal(self._recent.traits.gres, self._gres[0]) if self._gres is not None else None

    @cached_property
    def _similar_gres(self) -> Mask | None:
        if self._gres is None:
            return None
        names, kinds = self._recent.traits.gres, self._gres[0]
        similar = [may_be_same(kinds, known) for known in names.vocabulary]
        # The last place is that of code -1.
        return np.array([*similar, False], dtype=np.bool_)[names.codes]

    @cached_property
    def _opens_types(self) -> bool:
        """Whether types aside there are more of the kinds asked for."""
        same, similar = self._same_gres, self._similar_gres
        if similar is None:
            return False
        return int(similar.sum()) > (int(same.sum()) if same is not None else 0)

    @cached_property
    def _same_gres_count(self) -> Mask | None:
        if self._gres is None:
            return None
        return _within(self._recent.traits.gres_per_node, self._gres[1], GRES_BOUNDS)


def may_be_same(one: str, other: str) -> bool:
    """Whether two texts of kinds name the same resources, types aside where one of them names none.

    ``gpu`` may be ``gpu:a100``; ``gpu:v100`` is not.
    """
    ours, theirs = ([kind.partition(":") for kind in text.split(",")] for text in (one, other))
    return len(ours) == len(theirs) and all(
        name == other_name and (kind == other_kind or not kind or not other_kind)
        for (name, _, kind), (other_name, _, other_kind) in zip(ours, theirs, strict=True)
    )


def alike(nodes: Int64, limit: Int64, request: JobRequest) -> Mask:
    """Which jobs of these sizes and limits are of the request's very class."""
    return _within(nodes, request.nodes, NODE_BOUNDS) & _within(limit, request.limit, LIMIT_BOUNDS)


def class_of(request: JobRequest) -> tuple[str, int, int]:
    """The request's partition, and the numbers of its classes of size and limit."""
    size, limit = bisect_left(NODE_BOUNDS, request.nodes), bisect_left(LIMIT_BOUNDS, request.limit)
    return request.partition, size, limit


def _equal(names: Names, text: str) -> Mask | None:
    """Return the rows with this text; ``None`` if no row has it, or it is unknown."""
    if not text or text not in names.vocabulary:
        return None
    member: Mask = names.codes == names.vocabulary.index(text)
    return member


def _any_known(names: Names) -> bool:
    return bool(names.vocabulary) and bool((names.codes >= 0).any())


def _within(values: Int64, value: int, bounds: tuple[int, ...]) -> Mask:
    """Which values lie in the same class as ``value``."""
    above = max((bound for bound in bounds if bound < value), default=-1)
    upto = min((bound for bound in bounds if bound >= value), default=None)
    member = values > above
    return member if upto is None else member & (values <= upto)
