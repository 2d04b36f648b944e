"""Nodes as ``sinfo`` prints them, by partition and state, and whether a second job fits next to a running one."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from mirage.domain.errors import BadSpelling
from mirage.domain.snapshot import PartitionState
from mirage.slurm import rows
from mirage.slurm.rows import CELL

ARGUMENTS = ("--all", "--noconvert")
"""Of ``sinfo``: hidden partitions too."""

_FIELDS = ("%R", "%T", "%D")
# man sinfo, NODE STATE CODES, flags taken off. Reserved nodes are idle: who may use them does not matter here.
_KIND = {
    **dict.fromkeys(("allocated", "mixed", "completing", "draining", "failing"), "allocated"),
    **dict.fromkeys(("idle", "planned", "reserved", "power_up", "powering_up", "powered_down"), "idle"),
    **dict.fromkeys(("power_down", "powering_down", "blocked"), "idle"),
    **dict.fromkeys(("down", "drained", "fail", "error", "maint", "unknown", "future", "inval"), "down"),
    **dict.fromkeys(("reboot", "reboot_issued", "reboot_requested", "perfctrs", "no_respond"), "down"),
    **dict.fromkeys(("drain", "npc", "unk", "cloud", "dynamic"), "down"),
}
_SILENT = "*"
_FLAGS = "*~#!%$@^-+"
_COUNT = re.compile(r"[0-9]{1,9}")


def node_settings(mark: str) -> dict[str, str]:
    """Return what ``sinfo`` must find in its environment: one row for each partition and state."""
    return {"SINFO_FORMAT": f"{CELL.join(_FIELDS)}{mark}"}


def read_partitions(text: str, mark: str) -> tuple[tuple[PartitionState, ...], list[str]]:
    """Read an answer; and the rows that are not understood, which are left out.

    Raises ``BadSpelling`` when the answer is not whole, or none of its rows is understood. A partition without
    nodes has a total of 0. Nodes that do not respond are down, unless jobs run there.
    """
    table = rows.split_rows(text, _FIELDS, mark)
    unreadable = list(table.broken)
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for name, state, nodes in zip(*table.columns, strict=True):
        if not _COUNT.fullmatch(nodes):
            unreadable.append(CELL.join((name, state, nodes)))
            continue
        counts[name][kind_of(state) if int(nodes) else "idle"] += int(nodes)
    if unreadable and not counts:
        raise BadSpelling(unreadable[0], "is not a row of sinfo")
    partitions = tuple(
        PartitionState(name, found.total(), found["idle"], found["allocated"], found["down"])
        for name, found in counts.items()
    )
    return partitions, unreadable


def kind_of(state: str) -> str:
    """``idle``, ``allocated`` or ``down`` for a node state such as ``mixed-``, ``idle*`` or ``drained$``.

    A state that is not known counts as down: nothing is expected of such nodes. Raises nothing.
    """
    bare = state.lower().rstrip(_FLAGS)
    kind = _KIND.get(bare, "down")
    silent = _SILENT in state[len(bare) :]
    return "down" if silent and kind == "idle" else kind


MAY_BE_REQUEUED = "its predecessor may be requeued (Requeue=1)"
_AMOUNT = re.compile(r"(cpu|gres/[^=,\s]+)=(\d+)")
_OVER_SUBSCRIBE = re.compile(r"\bOverSubscribe=(\w+)")
_EXCLUSIVE = re.compile(r"\bExclusive=(\w+)")
_REQUEUE = re.compile(r"\bRequeue=(\d)")
_ALLOCATED = re.compile(r"(?<!\S)(?:Alloc)?TRES=(\S+)")
_CONFIGURED = re.compile(r"(?<!\S)CfgTRES=(\S+)")


def job_arguments(job_id: int) -> list[str]:
    """The ``scontrol`` command that shows the job on one line."""
    return ["scontrol", "--oneliner", "show", "job", str(job_id)]


def node_arguments(nodes: str) -> list[str]:
    """The ``scontrol`` command that shows the nodes (a host list), one line each."""
    return ["scontrol", "--oneliner", "show", "node", nodes]


def requeued(job: str) -> str:
    """Why the job may leave its nodes before it is over; empty: it does not."""
    found = _REQUEUE.search(job)
    return "" if found and found[1] == "0" else MAY_BE_REQUEUED


def has_whole_nodes(job: str) -> bool:
    """Whether Slurm gives its nodes to no other job (``--exclusive``, or the partition's OverSubscribe).

    Releases that show ``Exclusive`` (26.05) say ``OverSubscribe=NO`` of every job that shares no CPUs.
    """
    exclusive = _EXCLUSIVE.search(job)
    return exclusive[1] == "NODE" if exclusive else _over_subscribe(job) == "NO"


def why_shared(job: str, nodes: str, *, spreads: bool = False) -> str:
    """Why a second such job may fit next to it; empty: what both need is more than the nodes have.

    ``job``, ``nodes``: the answers of ``scontrol --oneliner show``. One that ``spreads`` may take what is free of
    these nodes, and the rest of others: it is kept off full ones alone.
    """
    exclusive = _EXCLUSIVE.search(job)
    if exclusive and exclusive[1] != "NO":
        return f"jobs of its owner may share its nodes (Exclusive={exclusive[1]})"
    if (told := _over_subscribe(job)) != ("NO" if exclusive else "OK"):
        return f"the nodes are oversubscribed (OverSubscribe={told})"
    used, there = _amounts(_ALLOCATED, job), _amounts(_CONFIGURED, nodes)
    known = used.keys() & there.keys()
    if any(used[name] == there[name] if spreads else 2 * used[name] > there[name] for name in known):
        return ""
    if spreads:
        return "its links may have a part of these nodes and a part of others (no --nodes)"
    return f"its links do not need whole nodes (OverSubscribe={told}), so that two of them fit on the same ones"


def _over_subscribe(job: str) -> str:
    found = _OVER_SUBSCRIBE.search(job)
    return found[1] if found else "unknown"


def _amounts(where: re.Pattern[str], text: str) -> Counter[str]:
    """CPUs and generic resources, summed up over all nodes."""
    total: Counter[str] = Counter()
    for listed in where.findall(text):
        for name, amount in _AMOUNT.findall(listed):
            total[name] += int(amount)
    return total
