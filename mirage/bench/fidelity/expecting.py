"""Small scenarios: when every job must start by the rule that the scenario is about, and whether it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.bench.fidelity.playing import Played
    from mirage.bench.fidelity.recording import Recording

LATE_S = 120
"""A start belongs to a time that it follows within this time: two periods of the main loop."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scenario as it went: by the names of jobs, seconds; tasks of an array are NAME.0, NAME.1 and so on."""

    submits: Mapping[str, int]
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    refused: frozenset[str]


def recorded_schedule(recording: Recording) -> Schedule:
    """The recorded schedule of the real Slurm, by job names."""
    names = names_of(recording)
    outcomes = {names[id_]: outcome for id_, outcome in recording.outcomes.items()}
    return Schedule(
        _submits(recording),
        {name: outcome.start for name, outcome in outcomes.items() if outcome.start is not None},
        {name: outcome.end for name, outcome in outcomes.items() if outcome.end is not None},
        frozenset(recording.refused),
    )


def simulated_schedule(recording: Recording, played: Played) -> Schedule:
    """The simulator's schedule of the recording, by job names."""
    names = names_of(recording)
    return Schedule(
        _submits(recording),
        {names[id_]: start for id_, start in played.starts.items()},
        {names[id_]: end for id_, end in played.ends.items()},
        frozenset(played.refused),
    )


def names_of(recording: Recording) -> dict[int, str]:
    """The names of jobs and tasks by id, jobs among them of which accounting says nothing."""
    names = {job.id: job.name for job in recording.jobs}
    return names | {
        outcome.id: f"{job.name}.{task}" if job.array else job.name
        for job in recording.jobs
        for task, outcome in enumerate(job.outcomes)
    }


def broken(recording: Recording, schedule: Schedule) -> tuple[str, ...]:
    """The expectations that the schedule does not meet, one sentence each."""
    return tuple(_broken(recording, schedule))


def _broken(recording: Recording, schedule: Schedule) -> Iterator[str]:
    for name, (kind, of) in recording.expected.items():
        if kind == "refused":
            if name not in schedule.refused:
                yield f"{name} was not rejected"
            continue
        start = schedule.starts.get(name)
        if kind == "never":
            if start is not None:
                yield f"{name} started"
            continue
        due = _instant(recording, schedule, kind, of)
        if start is None or due is None:
            yield f"{name} did not start" if start is None else f"{of}, which {name} waits for, has no {kind}"
        elif not due - 1 <= start <= due + LATE_S:
            yield f"{name} started {start - due} s after {kind} {of}"


def _instant(recording: Recording, schedule: Schedule, kind: str, of: str | int) -> int | None:
    if kind == "at":
        return recording.begin + int(of)
    if kind == "first end":
        return min((end for name, end in schedule.ends.items() if name.startswith(f"{of}.")), default=None)
    table = {"submit": schedule.submits, "start": schedule.starts, "end": schedule.ends}[kind]
    return table.get(str(of))


def _submits(recording: Recording) -> dict[str, int]:
    return {job.name: job.outcomes[0].submit for job in recording.jobs if job.outcomes}
