"""Results of each chain, from the daemon and from Slurm's accounting."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from keepalive.daemon import Use
    from keepalive.services import Service


@dataclass(frozen=True, slots=True)
class Fare:
    """Results of one chain; times in Slurm's seconds."""

    name: str
    owner: str
    status: str
    links: int
    """Links that ran."""
    failed: int
    interruptions: tuple[int, ...]
    overlaps: tuple[int, ...]
    faults: tuple[str, ...]
    """Violated expectations."""


def fare(service: Service, document: Mapping[str, Any], expected: int) -> Fare:
    """The results of one chain; ``expected``: number of its links."""
    links = [link for link in document["links"] if link["start"]]
    gaps = [
        _seconds(after["start"]) - _seconds(before["end"]) for before, after in pairwise(links) if before["end"]
    ]
    return Fare(
        service.name,
        service.owner,
        document["status"],
        len(links),
        sum(link["job_state"] == "FAILED" and not link["retired"] for link in links),
        tuple(max(0, gap) for gap in gaps),
        tuple(max(0, -gap) for gap in gaps),
        tuple(_faults(service, document, links, expected)),
    )


def _faults(service: Service, document: Mapping[str, Any], links: Sequence[Any], expected: int) -> list[str]:
    faults = []
    if document["status"] != service.status:
        faults.append(f"is {document['status']} ({document['reason']}), not {service.status}")
    if len(links) != expected:
        faults.append(f"{len(links)} links ran, not {expected}")
    jobs = [link["job_id"] for link in document["links"]]
    if len(jobs) != len(set(jobs)):
        faults.append("a job counts as two links")
    return faults


def doubles(accounting: str) -> list[str]:
    """Tags that more than one job carries, from lines ``JobID|Comment``."""
    seen: dict[str, str] = {}
    found = []
    for line in accounting.splitlines():
        job, _, tag = line.partition("|")
        if tag.startswith("mirage:") and seen.setdefault(tag, job) != job:
            found.append(f"{tag}: jobs {seen[tag]} and {job}")
    return found


def table(fares: Sequence[Fare]) -> str:
    """The results as text, in minutes of Slurm's time."""
    heading = (
        "chain",
        "owner",
        "status",
        "links",
        "failed",
        "interruption mean/max",
        "overlap mean/max",
        "without",
    )
    rows = [heading, *(_row(each) for each in fares)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(heading))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(each: Fare) -> tuple[str, ...]:
    none = sum(gap <= 60 for gap in each.interruptions)
    without = f"{none}/{len(each.interruptions)}"
    gaps = (_spread(each.interruptions), _spread(each.overlaps))
    return (each.name, each.owner, each.status, str(each.links), str(each.failed), *gaps, without)


def _spread(seconds: Sequence[int]) -> str:
    if not seconds:
        return "-"
    return f"{sum(seconds) / len(seconds) / 60:.1f} / {max(seconds) / 60:.1f} min"


def document(fares: Sequence[Fare], use: Sequence[Use], more: Mapping[str, Any]) -> dict[str, Any]:
    """All results as JSON."""
    return {**more, "chains": [asdict(each) for each in fares], "daemon": [asdict(each) for each in use]}


def growth(use: Sequence[Use]) -> str:
    """Growth of the daemon's resources after the first quarter."""
    if len(use) < 8:
        return "too short to measure"
    quarter, last = use[len(use) // 4], use[-1]
    hours = (last.at - quarter.at) / 3_600
    return (
        f"{quarter.resident_kb / 1024:.1f} MB and {quarter.descriptors} descriptors after a quarter, "
        f"{last.resident_kb / 1024:.1f} MB and {last.descriptors} at the end, {hours:.1f} of Slurm's hours later"
    )


def _seconds(instant: str) -> int:
    return int(datetime.fromisoformat(instant).timestamp())
