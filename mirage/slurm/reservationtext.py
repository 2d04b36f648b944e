"""Reservations and partitions as ``scontrol --oneliner show`` prints them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirage.domain.errors import BadSpelling
from mirage.slurm import hostlist

SETTINGS = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
RESERVATION_ARGUMENTS = ("--oneliner", "show", "reservation")
PARTITION_ARGUMENTS = ("--oneliner", "--all", "show", "partition")

_WORD = re.compile(r"(\w+)=(\S*)")
_EPOCH = re.compile(r"[0-9]{1,18}")
_NOTHING = ("", "(null)", "N/A", "None")


@dataclass(frozen=True, slots=True)
class Reserved:
    """Nodes that are kept for some between two times (epoch seconds)."""

    start: int
    end: int
    nodes: frozenset[str]
    users: tuple[str, ...]
    """Users and accounts as Slurm lists them: those with ``-`` in front are excluded, and all others admitted."""
    accounts: tuple[str, ...]

    def admits(self, user: str, account: str) -> bool:
        """Whether jobs of this user in this account may run there; one that lists neither admits no job."""
        lists = [(listed, name) for listed, name in ((self.users, user), (self.accounts, account)) if listed]
        return bool(lists) and all(_is_in(name, listed) for listed, name in lists)


@dataclass(frozen=True, slots=True)
class PartitionNodes:
    """Nodes and QOS of a partition."""

    nodes: frozenset[str]
    qos: str
    """QOS whose limits hold for all jobs of the partition; empty: none."""
    default: bool


def read_reservations(text: str) -> tuple[Reserved, ...]:
    """Present and future reservations. Raises ``BadSpelling``."""
    return tuple(_reserved(words) for words in _records(text, "ReservationName"))


def read_partition_nodes(text: str) -> dict[str, PartitionNodes]:
    """Every partition by name. Raises ``BadSpelling``."""
    return {words["PartitionName"]: _partition(words) for words in _records(text, "PartitionName")}


def _records(text: str, first: str) -> list[dict[str, str]]:
    return [dict(_WORD.findall(line)) for line in text.splitlines() if line.startswith(f"{first}=")]


def _reserved(words: dict[str, str]) -> Reserved:
    return Reserved(
        start=_instant(words, "StartTime"),
        end=_instant(words, "EndTime"),
        nodes=_nodes(words),
        users=_listed(words, "Users"),
        accounts=_listed(words, "Accounts"),
    )


def _partition(words: dict[str, str]) -> PartitionNodes:
    qos = words.get("QoS", "")
    return PartitionNodes(_nodes(words), "" if qos in _NOTHING else qos, words.get("Default") == "YES")


def _nodes(words: dict[str, str]) -> frozenset[str]:
    nodes = words.get("Nodes", "")
    return frozenset() if nodes in _NOTHING else frozenset(hostlist.expand(nodes))


def _listed(words: dict[str, str], name: str) -> tuple[str, ...]:
    text = words.get(name, "")
    return () if text in _NOTHING else tuple(text.split(","))


def _instant(words: dict[str, str], name: str) -> int:
    text = words.get(name, "")
    if not _EPOCH.fullmatch(text):
        raise BadSpelling(text, f"expected {name} in epoch seconds")
    return int(text)


def _is_in(name: str, listed: tuple[str, ...]) -> bool:
    if all(entry.startswith("-") for entry in listed):
        return f"-{name}" not in listed
    return name in listed
