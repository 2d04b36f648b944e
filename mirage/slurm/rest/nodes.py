"""Nodes, in the newest shape, counted by partition."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from mirage.domain.errors import BadSpelling
from mirage.domain.snapshot import PartitionState
from mirage.slurm.rest.fields import Record, texts, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

_OCCUPIED = {"ALLOCATED", "MIXED", "COMPLETING"}
_UNUSABLE = {
    "DOWN",
    "ERROR",
    "UNKNOWN",
    "DRAIN",
    "FAIL",
    "NOT_RESPONDING",
    "INVALID_REG",
    "INVALID",
    "MAINTENANCE",
}
_ABSENT = {"FUTURE", "DYNAMIC_FUTURE"}


def read_partitions(
    sources: Sequence[T], shape: Callable[[T], Record]
) -> tuple[tuple[PartitionState, ...], list[str]]:
    """Each partition's nodes by state, in order of appearance; a node counts in each of its partitions.

    A node that only stands in the configuration (FUTURE) does not count; one that is powered down does, as idle.
    ``shape`` as in ``read_queue``. Nodes that cannot be read are left out and reported; raises ``BadSpelling``
    where none can.
    """
    counts: dict[str, Counter[str]] = {}
    unreadable: list[str] = []
    for source in sources:
        try:
            record = shape(source)
            use, names = _use(set(texts(record, "state"))), _partitions(record)
        except BadSpelling as fault:
            unreadable.append(str(fault))
            if len(unreadable) == len(sources):
                raise
            continue
        for name in names:
            counts.setdefault(name, Counter())[use] += 1
    found = tuple(
        PartitionState(name, of["idle"] + of["allocated"] + of["down"], of["idle"], of["allocated"], of["down"])
        for name, of in counts.items()
        if of.keys() != {"absent"}
    )
    return found, unreadable


def _use(state: set[str]) -> str:
    if state & _ABSENT:
        return "absent"
    if "DOWN" in state:
        return "down"
    if state & _OCCUPIED:
        return "allocated"
    return "down" if state & _UNUSABLE else "idle"


def _partitions(record: Record) -> list[str]:
    value = record.get("partitions")
    if type(value) is not list or not all(type(item) is str for item in value):
        raise wrong(record, "partitions", "a list of texts")
    return value
