"""``mirage bench fidelity``: the simulator against a real slurmctld, as tables.

Recordings and simulations are compared by start times, waits and order. Small scenarios state when every job must
start by the rule that the scenario is about.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.bench import BenchSection
from mirage.bench.recorded_passes import SAME_S, alike, ask, conduct
from mirage.bench.recordings import play, read_recording
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirage.bench.recordings import PlayedRecording, Recording

LATE_S = 120
"""A start belongs to a time that it follows within this time: two periods of the main loop."""


@dataclass(frozen=True, slots=True)
class NamedSchedule:
    """A scenario as it went: by the names of jobs, seconds; tasks of an array are NAME.0, NAME.1 and so on."""

    submits: Mapping[str, int]
    starts: Mapping[str, int]
    ends: Mapping[str, int]
    refused: frozenset[str]


def recorded_schedule(recording: Recording) -> NamedSchedule:
    """The recorded schedule of the real Slurm, by job names."""
    names = names_of(recording)
    outcomes = {names[id_]: outcome for id_, outcome in recording.outcomes.items()}
    return NamedSchedule(
        _submits(recording),
        {name: outcome.start for name, outcome in outcomes.items() if outcome.start is not None},
        {name: outcome.end for name, outcome in outcomes.items() if outcome.end is not None},
        frozenset(recording.refused),
    )


def simulated_schedule(recording: Recording, played: PlayedRecording) -> NamedSchedule:
    """The simulator's schedule of the recording, by job names."""
    names = names_of(recording)
    return NamedSchedule(
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


def broken(recording: Recording, schedule: NamedSchedule) -> tuple[str, ...]:
    """The expectations that the schedule does not meet, one sentence each."""
    return tuple(_broken(recording, schedule))


def _broken(recording: Recording, schedule: NamedSchedule) -> Iterator[str]:
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


def _instant(recording: Recording, schedule: NamedSchedule, kind: str, of: str | int) -> int | None:
    if kind == "at":
        return recording.begin + int(of)
    if kind == "first end":
        return min((end for name, end in schedule.ends.items() if name.startswith(f"{of}.")), default=None)
    table = {"submit": schedule.submits, "start": schedule.starts, "end": schedule.ends}[kind]
    return table.get(str(of))


def _submits(recording: Recording) -> dict[str, int]:
    return {job.name: job.outcomes[0].submit for job in recording.jobs if job.outcomes}


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two schedules of jobs that started in both; seconds."""

    jobs: int
    alone: int
    """Jobs that started in one of them only."""
    median_error: float
    """Of |start - start|."""
    p90_error: float
    rank_correlation: float
    """Spearman's, of waits."""
    mean_wait_ratio: float
    """Mean wait of the second schedule over that of the first."""
    mean_wait: float
    """Of the first."""
    within_minute: float
    """Share of jobs that start within 60 s of each other."""


def agreement(submits: Mapping[int, int], first: Mapping[int, int], second: Mapping[int, int]) -> Agreement:
    """Compare two schedules, each starts by job id. Raises ``ValueError`` where they share no job."""
    both = sorted(first.keys() & second.keys())
    if not both:
        raise ValueError("no job started in both")
    submit, a, b = (np.array([each[job] for job in both], dtype=np.float64) for each in (submits, first, second))
    error, waits, others = np.abs(b - a), a - submit, b - submit
    return Agreement(
        len(both),
        len(first.keys() ^ second.keys()),
        float(np.median(error)),
        float(np.quantile(error, 0.9)),
        rank_correlation(waits, others),
        float(others.mean() / waits.mean()) if waits.mean() > 0 else float("nan"),
        float(waits.mean()),
        float((error <= 60).mean()),
    )


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's rho, ties sharing their mean rank; ``nan`` where one of them is constant."""
    ranks = _ranks(a), _ranks(b)
    if any(np.ptp(each) == 0 for each in ranks):
        return float("nan")
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Floats = (last - (counts - 1) / 2)[place]
    return mean


SUFFIX = ".json.gz"


def measure_fidelity(place: Path, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """Compare one recording, or each of a directory, with the simulator, and with others of the same workload.

    Raises ``ConfigError`` where no recording is found, ``TraceError`` for one that cannot be read.
    """
    paths = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
    if not paths or not paths[0].exists():
        raise ConfigError("--recordings", f"{place}: holds no recording; slurm-testbed/fidelity makes them")
    sections, workloads = [], defaultdict(list)
    for path in paths:
        recording = read_recording(path)
        if not recording.expected:
            workloads[recording.workload, recording.seed].append((path, recording))
        say(f"{path.name}: {len(recording.jobs)} jobs")
        sections.append((_expected if recording.expected else _simulated)(path, recording))
    for pairs in workloads.values():
        sections += [_repeated(first, second) for k, first in enumerate(pairs) for second in pairs[k + 1 :]]
    return tuple(sections)


def starts_of(recording: Recording) -> dict[int, int]:
    """Recorded start times by id, without jobs that never started."""
    return {id_: each.start for id_, each in recording.outcomes.items() if each.start is not None}


def submits_of(recording: Recording) -> dict[int, int]:
    """Recorded submission times by id, of all jobs."""
    return {id_: each.submit for id_, each in recording.outcomes.items()}


def _expected(path: Path, recording: Recording) -> BenchSection:
    """A small scenario: whether both sides start every job when its rule says."""
    schedules = {
        f"Slurm {recording.slurm}": recorded_schedule(recording),
        "the simulator": simulated_schedule(recording, play(recording)),
    }
    rows = [(side, "; ".join(broken(recording, went)) or "exact") for side, went in schedules.items()]
    return BenchSection(f"{path.name}: scenario {recording.workload}", tuple(rows))


def _simulated(path: Path, recording: Recording) -> BenchSection:
    played, asked = play(recording), ask(recording)
    submits, starts = submits_of(recording), starts_of(recording)
    rows = list(_rows(agreement(submits, starts, played.starts)))
    rows += [("rejected by the simulator alone", str(len(played.refused)))] if played.refused else []
    conducted = agreement(submits, starts, conduct(recording).starts)
    rows += [(f"looking when slurmctld did: {name}", value) for name, value in _rows(conducted)]
    rows.append((f"asked again: starts alike (within {SAME_S} s)", f"{alike(recording, asked).mean():.1%}"))
    for kind, words in (("main", "  those of the main loop"), ("backfill", "  those of backfill")):
        shares = alike(recording, asked, by=kind)
        if len(shares):
            rows.append((words, f"{shares.mean():.1%} of {len(shares)}"))
    if asked.priorities:
        slurms, ours = np.array(asked.priorities, dtype=np.float64)[:, 2:].T
        rows.append(("priorities within 0.1 %", f"{(np.abs(ours - slurms) <= slurms / 1000).mean():.1%}"))
    title = (
        f"{path.name}: {recording.workload}, seed {recording.seed}, Slurm {recording.slurm}, x{recording.speed:g}"
    )
    return BenchSection(f"{title}, steps late by {recording.lag:.1f} s", tuple(rows))


def repeated(first: Recording, second: Recording) -> Agreement:
    """The same workload recorded twice: what chance alone does. Jobs are matched by name."""
    names = {job.name: job.outcomes for job in second.jobs}
    matched = {
        outcome.id: other
        for job in first.jobs
        for outcome, other in zip(job.outcomes, names.get(job.name, ()), strict=False)
    }
    late = second.begin - first.begin
    starts = {id_: each.start - late for id_, each in matched.items() if each.start is not None}
    return agreement(submits_of(first), starts_of(first), starts)


def _repeated(first: tuple[Path, Recording], second: tuple[Path, Recording]) -> BenchSection:
    rows = tuple(_rows(repeated(first[1], second[1])))
    return BenchSection(f"Slurm against itself: {first[0].name} and {second[0].name}", rows)


def _rows(found: Agreement) -> Iterator[tuple[str, str]]:
    yield "jobs that started in both", f"{found.jobs} (in one alone: {found.alone})"
    yield "mean wait", f"{found.mean_wait:,.0f} s"
    yield "start error, median", f"{found.median_error:,.0f} s"
    yield "start error, P90", f"{found.p90_error:,.0f} s"
    yield "starts within a minute", f"{found.within_minute:.1%}"
    yield "rank correlation of waits", f"{found.rank_correlation:.4f}"
    yield "ratio of mean waits", f"{found.mean_wait_ratio:.3f}"
