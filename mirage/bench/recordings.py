"""Recordings of ``slurm-testbed/fidelity``, read, and played on the simulator with the recorded slurm.conf.

A recording has the commands to a real Slurm, and its reactions. What is taken from it next to the workload
itself: when each command took effect, how long each job ran (whole seconds, as in sacct), and when slurmctld
started, since its periods count from there.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mirage.documentreading import parse_json
from mirage.domain.errors import BadSpelling, SubmissionRejected, TraceError
from mirage.domain.job import Dependency, DependencyKind, JobId, JobRequest, JobState
from mirage.simulator.cluster import Reservation
from mirage.simulator.configuration.slurmconf import VERSION_FILE, read_slurm_conf
from mirage.simulator.kernel.layout import LOG_CANCEL, LOG_END, LOG_START
from mirage.simulator.simulation import Simulation
from mirage.slurm.hostlist import expand
from mirage.slurm.tres import parse_gres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from mirage.simulator.cluster import ClusterConfig

FORMAT = 1


@dataclass(frozen=True, slots=True)
class RecordedOutcome:
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
    outcomes: tuple[RecordedOutcome, ...]
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
class RecordedQueue:
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
    looks: tuple[RecordedQueue, ...]
    expected: Mapping[str, tuple[str, str | int]]
    """Of a small scenario: when jobs must start (``expecting.py``)."""
    refused: Mapping[str, str]
    """Slurm's words, by the job or the change that it rejected."""

    @property
    def outcomes(self) -> dict[int, RecordedOutcome]:
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
        tuple(RecordedQueue(look["time"], tuple(map(tuple, look["pending"]))) for look in document["looks"]),
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


def _by_node(outcome: RecordedOutcome, told: float | dict[str, float]) -> dict[str, float]:
    """One time stands for all nodes, as in recordings that hold the last one only."""
    return told if isinstance(told, dict) else dict.fromkeys(expand(outcome.nodes), told)


def _job(row: dict[str, Any]) -> RecordedJob:
    known = {field.name for field in fields(RecordedJob)} - {"outcomes"}
    asked = {key: value for key, value in row.items() if key in known}
    return RecordedJob(outcomes=tuple(RecordedOutcome(**each) for each in row["outcomes"]), **asked)


Step = tuple[float, int, int, "Callable[[], None]"]
"""When, what kind of thing (those asked of Slurm are 0), the order among its kind, what."""

LONGER_S = 86_400
COMMAND_S = 15
"""The effect of a command is sought in accounting within this time before its end."""
LIMITS_LATE_S = 31
"""slurmctld looks for jobs beyond their limits every half minute; how late it was is in the recorded run times."""
ENDS = {"FAILED": JobState.FAILED, "TIMEOUT": JobState.TIMEOUT}


@dataclass(frozen=True, slots=True)
class PlayedRecording:
    """Results of the simulator for a recording."""

    starts: dict[int, int]
    """By the recorded id, of jobs that started."""
    ends: dict[int, int]
    refused: dict[str, str]
    """Jobs that Slurm took and the simulator did not, with its reason."""


def cluster_of(recording: Recording, late: int = 0) -> ClusterConfig:
    """The recorded cluster as the simulator reads it; recorded run times may pass limits by ``late`` s more.

    Raises ``ConfigError``.
    """
    files = {**recording.files, VERSION_FILE: recording.slurm}
    config = read_slurm_conf(files.pop("slurm.conf"), "slurm.conf", files).config
    scheduler = replace(config.scheduler, over_time_limit=config.scheduler.over_time_limit + LIMITS_LATE_S + late)
    return replace(config, scheduler=scheduler, boot=recording.boot)


def play(recording: Recording) -> PlayedRecording:
    """Play the whole recording, to the end of its last job."""
    simulation = Simulation(cluster_of(recording), start=recording.boot, log=True)
    player = Player(recording, simulation)
    player.run()
    return player.played()


class Player:
    """One recording in one simulation."""

    def __init__(self, recording: Recording, simulation: Simulation) -> None:
        """``simulation``: idle, at slurmctld's start."""
        self._recording, self.simulation = recording, simulation
        self._ids: dict[int, JobId] = {}
        self._recorded: dict[JobId, int] = {}
        self._outcomes = recording.outcomes
        self._names = {job.name: job.id for job in recording.jobs}
        self._refused: dict[str, str] = {}

    def run(self) -> None:
        """Every step at its recorded time, then on until a day after the last recorded end."""
        self.take(self._steps())
        ends = (each.end for each in self._outcomes.values() if each.end is not None)
        self.simulation.run_until(max(ends, default=self.simulation.now) + LONGER_S)

    def take(self, steps: Iterable[Step]) -> None:
        """These steps, each at its time."""
        for time, _, _, act in sorted(steps, key=lambda step: step[:3]):
            self.simulation.run_until(int(time))
            act()

    def played(self) -> PlayedRecording:
        """Starts by recorded id; a job that was requeued has its last."""
        events = self.simulation.events()
        ended = (events["kind"] == LOG_END) | (events["kind"] == LOG_CANCEL)
        starts = self._times(events[events["kind"] == LOG_START])
        return PlayedRecording(starts, self._times(events[ended]), self._refused)

    def _times(self, events: NDArray[np.void]) -> dict[int, int]:
        ids, times = events["id"].tolist(), events["time"].tolist()
        return {self._recorded[JobId(id_)]: time for id_, time in zip(ids, times, strict=True)}

    def _steps(self) -> Iterator[Step]:
        submit: float = self._recording.begin
        for order, job in enumerate(self._recording.jobs):
            # When Slurm rejected one is not recorded: at its time, behind what was submitted before.
            submit = self._submitted(job) or max(submit, self._recording.begin + job.at)
            yield submit, 0, order, partial(self._submit, job)
        for order, change in enumerate(self._recording.changes, start=len(self._recording.jobs)):
            yield self._effective(change), 0, order, partial(self._change, change)

    def _submitted(self, job: RecordedJob) -> float:
        """When Slurm had it in the queue, as exactly as is known; 0 where it rejected it."""
        return self._recording.submitted.get(job.id, job.outcomes[0].submit) if job.outcomes else 0.0

    def _effective(self, change: RecordedChange) -> int:
        """When the command took effect: by accounting if it shows that, else the recorded end of the command."""
        outcome = self._outcomes.get(change.job)
        told = {"release": "eligible", "cancel": "end"}.get(change.kind)
        time = getattr(outcome, told) if outcome and told else None
        return time if time is not None and 0 <= change.time - time <= COMMAND_S else change.time

    def _submit(self, job: RecordedJob) -> None:
        request = self._request(job)
        try:
            if job.array:
                runtimes = [self.runtime_of(job, outcome) for outcome in job.outcomes]
                ids = self.simulation.submit_array(request, runtimes, job.most_at_once)
            else:
                ids = (self.simulation.submit(request, *self._end_of(job)),)
        except SubmissionRejected as refusal:
            self._refused[job.name] = str(refusal)
            return
        known = [outcome.id for outcome in job.outcomes] or [job.id]
        for recorded, found in zip(known, ids, strict=True):
            self._ids[recorded], self._recorded[found] = found, recorded

    def _end_of(self, job: RecordedJob) -> tuple[int, JobState]:
        """How long the one job of a submission is to run, and how it ends; as asked where Slurm rejected it."""
        if not job.outcomes:
            return job.runtime, JobState.COMPLETED
        outcome = job.outcomes[0]
        return self.runtime_of(job, outcome), ENDS.get(outcome.state, JobState.COMPLETED)

    def runtime_of(self, job: RecordedJob, outcome: RecordedOutcome) -> int:
        """Seconds that the job is to run: as long as it did; one that was cancelled as long as it would have."""
        if outcome.start is None or outcome.end is None or outcome.state == "CANCELLED":
            return job.runtime
        return outcome.end - outcome.start

    def _request(self, job: RecordedJob) -> JobRequest:
        return JobRequest(
            job.job_name or job.name,
            job.user,
            job.limit * 60,
            job.nodes,
            job.partition,
            job.account,
            cpus_per_node=job.cpus,
            gres_per_node=parse_gres(job.gres),
            features=tuple(job.features.split("&")) if job.features else (),
            exclusive=job.exclusive,
            begin=self._recording.begin + job.begin if job.begin else 0,
            held=job.held,
            nice=job.nice,
            dependencies=tuple(self._dependencies(job)),
            reservation=job.reservation,
            node_list=job.node_list,
        )

    def _dependencies(self, job: RecordedJob) -> Iterator[Dependency]:
        if job.depends_on:
            kind, _, delay = job.dependency.partition("+")
            awaited = self._ids[self._names[job.depends_on]]
            yield Dependency(DependencyKind[kind.upper()], awaited, int(delay or 0) * 60)
        if job.singleton:
            yield Dependency(DependencyKind.SINGLETON)

    def _change(self, change: RecordedChange) -> None:
        simulation, job = self.simulation, self._ids.get(change.job)
        match change.kind:
            case "reserve":
                name, start, end, nodes = change.value.split(",", 3)
                simulation.reserve(Reservation(name, int(start), int(end), tuple(expand(nodes))))
            case "down" | "drain" | "resume":
                simulation.set_nodes(expand(change.value), change.kind)
            case _ if job is None:
                return
            case "hold":
                simulation.hold(job)
            case "release":
                simulation.release(job)
            case "nice":
                simulation.set_nice(job, int(change.value))
            case "cancel":
                simulation.cancel(job)
