"""The time limit that a partition gives to jobs without one, from ``scontrol --oneliner show partition``."""

from __future__ import annotations

import re

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Seconds
from mirage.slurm import duration

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
