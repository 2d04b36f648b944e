"""A recording of ``slurm-testbed/fidelity``: the commands to a real Slurm, and its reactions."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mirage.documenttext import parse_json
from mirage.domain.errors import BadSpelling, TraceError
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """The course of one job or one task of an array; times are Slurm's, ``None`` where it has none."""

    id: int
    submit: int
    eligible: int | None
    start: int | None
    end: int | None
    state: str
    nodes: str
    """A host list; ``None assigned`` where it never started."""
    by: str
    """Scheduler that started it: ``main``, ``backfill``, or "" where the log does not show it."""

    @property
    def ran(self) -> bool:
        """Whether both a start and an end are recorded."""
        return self.start is not None and self.end is not None


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """One submission as it was asked for, and how its job went; all tasks of an array."""

    name: str
    id: int
    user: str
    partition: str
    limit: int
    """Minutes."""
    runtime: int
    """Seconds that it was to run."""
    outcomes: tuple[Outcome, ...]
    account: str = ""
    nodes: int = 1
    cpus: int = 1
    gres: str = ""
    exclusive: bool = False
    features: str = ""
    node_list: str = ""
    nice: int = 0
    held: bool = False
    begin: int = 0
    """Seconds after ``Recording.begin``; 0: immediately."""
    depends_on: str = ""
    dependency: str = "afterok"
    singleton: bool = False
    reservation: str = ""
    array: int = 0
    most_at_once: int = 0
    job_name: str = ""
    at: int = 0


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """An action at a given time on the job with the id ``job`` or on the cluster."""

    time: int
    kind: str
    job: int
    value: str


@dataclass(frozen=True, slots=True)
class Look:
    """The queue at a time: (id, priority, reason) of what was pending."""

    time: int
    pending: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A workload on one version of Slurm, with settings, commands and results."""

    workload: str
    seed: int
    slurm: str
    speed: float
    """Slurm's seconds in a real one."""
    begin: int
    boot: int
    """When slurmctld started."""
    lag: float
    """Median seconds between the time of a step and its end, on Slurm's clock."""
    files: Mapping[str, str]
    """slurm.conf and what belongs to it, by name."""
    jobs: tuple[RecordedJob, ...]
    changes: tuple[RecordedChange, ...]
    submitted: Mapping[int, float]
    """When a job was in the queue, to the millisecond of slurmctld's log; not for every job."""
    ended: Mapping[int, float]
    """When a job ended, by the same."""
    freed: Mapping[int, Mapping[str, float]]
    """When each of a job's nodes was free again, by the same; a node that is missing was free at the end."""
    passes: tuple[tuple[float, str], ...]
    """When a scheduler began to look, and which: ``main``, ``full`` (the main loop, whole queue), ``backfill``."""
    looks: tuple[Look, ...]
    expected: Mapping[str, tuple[str, str | int]]
    """Of a small scenario: when jobs must start (``expecting.py``)."""
    refused: Mapping[str, str]
    """Slurm's words, by the job or the change that it rejected."""

    @property
    def outcomes(self) -> dict[int, Outcome]:
        """Outcomes of all jobs and array tasks, by id."""
        return {outcome.id: outcome for job in self.jobs for outcome in job.outcomes}


def read_recording(path: Path) -> Recording:
    """Read a recording. Raises ``TraceError`` naming the file and what is wrong with it."""
    try:
        document = parse_json(gzip.decompress(path.read_bytes()), most=None)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TraceError(str(path), 0, "", f"is not a recording of slurm-testbed/fidelity: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise TraceError(str(path), 0, "", f"is not a recording of format {FORMAT}")
    try:
        return _recording(document)
    except (KeyError, TypeError, ValueError, AttributeError, BadSpelling) as error:
        raise TraceError(str(path), 0, "", f"a recording without what one must have: {error}") from error


def _recording(document: dict[str, Any]) -> Recording:
    jobs = tuple(_job(row) for row in document["jobs"])
    return Recording(
        document["workload"],
        document["seed"],
        document["slurm"],
        document["speed"],
        document["begin"],
        document["boot"],
        document["lag"]["median"],
        document["files"],
        jobs,
        tuple(RecordedChange(**row) for row in document["changes"]),
        *_instants(document.get("instants", {}), jobs),
        tuple((time, kind) for time, kind in document["passes"]),
        tuple(Look(look["time"], tuple(map(tuple, look["pending"]))) for look in document["looks"]),
        {name: (kind, of) for name, (kind, of) in document["expected"].items()},
        document["refused"],
    )


def _instants(
    document: dict[str, dict[str, Any]], jobs: Iterable[RecordedJob]
) -> tuple[dict[int, float], dict[int, float], dict[int, dict[str, float]]]:
    submitted, ended, freed = (
        {int(id_): told for id_, told in document.get(key, {}).items()} for key in ("submitted", "ended", "freed")
    )
    ran = (outcome for job in jobs for outcome in job.outcomes if outcome.ran)
    return submitted, ended, {each.id: _by_node(each, freed[each.id]) for each in ran if each.id in freed}


def _by_node(outcome: Outcome, told: float | dict[str, float]) -> dict[str, float]:
    """One time stands for all nodes, as in recordings that hold the last one only."""
    return told if isinstance(told, dict) else dict.fromkeys(expand(outcome.nodes), told)


def _job(row: dict[str, Any]) -> RecordedJob:
    known = {field.name for field in fields(RecordedJob)} - {"outcomes"}
    asked = {key: value for key, value in row.items() if key in known}
    return RecordedJob(outcomes=tuple(Outcome(**each) for each in row["outcomes"]), **asked)
