"""``mirage bench fidelity``: how recordings of a real slurmctld and the simulator compare, as tables."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from mirage.bench.fidelity.asking import SAME_S, alike, ask
from mirage.bench.fidelity.comparing import agreement
from mirage.bench.fidelity.conducting import conduct
from mirage.bench.fidelity.expecting import broken, recorded_schedule, simulated_schedule
from mirage.bench.fidelity.playing import play
from mirage.bench.fidelity.recording import read_recording
from mirage.bench.section import Section
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirage.bench.fidelity.comparing import Agreement
    from mirage.bench.fidelity.recording import Recording

SUFFIX = ".json.gz"


def measure_fidelity(place: Path, say: Callable[[str], None]) -> tuple[Section, ...]:
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


def _expected(path: Path, recording: Recording) -> Section:
    """A small scenario: whether both sides start every job when its rule says."""
    schedules = {
        f"Slurm {recording.slurm}": recorded_schedule(recording),
        "the simulator": simulated_schedule(recording, play(recording)),
    }
    rows = [(side, "; ".join(broken(recording, went)) or "exact") for side, went in schedules.items()]
    return Section(f"{path.name}: scenario {recording.workload}", tuple(rows))


def _simulated(path: Path, recording: Recording) -> Section:
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
    return Section(f"{title}, steps late by {recording.lag:.1f} s", tuple(rows))


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


def _repeated(first: tuple[Path, Recording], second: tuple[Path, Recording]) -> Section:
    rows = tuple(_rows(repeated(first[1], second[1])))
    return Section(f"Slurm against itself: {first[0].name} and {second[0].name}", rows)


def _rows(found: Agreement) -> Iterator[tuple[str, str]]:
    yield "jobs that started in both", f"{found.jobs} (in one alone: {found.alone})"
    yield "mean wait", f"{found.mean_wait:,.0f} s"
    yield "start error, median", f"{found.median_error:,.0f} s"
    yield "start error, P90", f"{found.p90_error:,.0f} s"
    yield "starts within a minute", f"{found.within_minute:.1%}"
    yield "rank correlation of waits", f"{found.rank_correlation:.4f}"
    yield "ratio of mean waits", f"{found.mean_wait_ratio:.3f}"
