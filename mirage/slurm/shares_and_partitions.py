"""Fair shares (``sshare``), default accounts (``sacctmgr``), reservations and partitions (``scontrol``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Seconds
from mirage.slurm import duration, hostlist

SHARE_ARGUMENTS = ("--all", "--parsable2")
"""Arguments of ``sshare`` for all users'."""
USER_ARGUMENTS = ("--parsable2", "show", "user")
"""Arguments of ``sacctmgr`` for all users' default account."""

Owner = tuple[str, str]
"""(account, user)."""


def read_shares(text: str) -> dict[Owner, float]:
    """The fair-share factor of each user in each account, within 0 and 1; accounts themselves have none.

    Raises ``BadSpelling``.
    """
    found: dict[Owner, float] = {}
    for cells in _rows(text, "account", "user", "fairshare"):
        if cells["user"] and cells["fairshare"]:
            found[cells["account"], cells["user"]] = _factor(cells["fairshare"])
    return found


def read_default_accounts(text: str) -> dict[str, str]:
    """The default account of each user. Raises ``BadSpelling``."""
    return {cells["user"]: cells["defacct"] for cells in _rows(text, "user", "defacct")}


def _rows(text: str, *needed: str) -> list[dict[str, str]]:
    """Rows by column name: in lower case, without blanks."""
    lines = text.splitlines()
    names = [name.lower().replace(" ", "") for name in lines[0].split("|")] if lines else []
    if missing := [name for name in needed if name not in names]:
        raise BadSpelling(text[:200], f"expected a heading with a column {missing[0]}")
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[1:]]
    if broken := [row for row in rows if len(row) != len(names)]:
        raise BadSpelling("|".join(broken[0])[:200], f"expected {len(names)} columns")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not 0.0 <= factor <= 1.0:
        raise BadSpelling(text, "is not a fair-share factor within 0 and 1")
    return factor


_FIELD = re.compile(r"(\w+)=(\S*)")


def read_default_limit(text: str, partition: str) -> Seconds:
    """DefaultTime of ``partition``, or MaxTime if it has none; an empty name means the default partition.

    Of several partitions (comma-separated) the shortest counts: the job may start in any. Raises ``BadSpelling``
    where the partition is not in ``text``.
    """
    known = [dict(_FIELD.findall(line)) for line in text.splitlines() if line.startswith("PartitionName=")]
    wanted = [name for name in partition.split(",") if name]
    chosen = [
        fields
        for fields in known
        if (fields["PartitionName"] in wanted if wanted else fields.get("Default") == "YES")
    ]
    if not chosen or len(chosen) < len(wanted):
        names = ", ".join(fields["PartitionName"] for fields in known)
        problem = f"there is no such partition; there are: {names}" if partition else "no partition is the default"
        raise BadSpelling(partition or "--partition", problem)
    return min(_limit(fields) for fields in chosen)


def _limit(fields: dict[str, str]) -> Seconds:
    given = duration.parse_limit(fields.get("DefaultTime", ""))
    return given if given != ABSENT else duration.parse(fields.get("MaxTime", "UNLIMITED"))


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
    submits: bool = True
    """Whether jobs on its nodes may submit to it (``AllocNodes``)."""


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
    qos, from_where = words.get("QoS", ""), words.get("AllocNodes", "")
    nodes = _nodes(words)
    submits = from_where in ("ALL", *_NOTHING) or nodes <= _nodes(words, "AllocNodes")
    return PartitionNodes(nodes, "" if qos in _NOTHING else qos, words.get("Default") == "YES", submits)


def partitions_without_submission(text: str, partition: str) -> tuple[str, ...]:
    """Those of ``partition`` (a list; empty: the default) whose nodes may not submit. Raises ``BadSpelling``."""
    known = read_partition_nodes(text)
    wanted = partition.split(",") if partition else [name for name, each in known.items() if each.default]
    return tuple(name for name in wanted if name in known and not known[name].submits)


def _nodes(words: dict[str, str], name: str = "Nodes") -> frozenset[str]:
    nodes = words.get(name, "")
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
