"""The nodes as ``sinfo`` prints them in the format of ``node_settings``, counted by partition and state."""

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
    table = rows.cut(text, _FIELDS, mark)
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
