"""How much one cycle of the daemon costs on a large and busy cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bench import standin
from mirage.bench.section import Section
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition, Link, LinkState
from mirage.domain.job import JobId, JobRequest, JobState

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

SEED = 1
HOUR = 3_600
CYCLES = 9
"""The first reads everything for the first time and is told apart."""
_FIRST_LINK_ID = 5_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What the cycles of one process cost."""

    cycles: tuple[float, ...]
    """Real seconds of each, the commands' own time included."""
    answers: tuple[float, ...]
    """Of that, seconds until the commands' text was read into columns."""
    peak_mb: float
    """Largest resident size of the process."""
    calls: float
    """Questions to Slurm a cycle."""
    decisions: int
    """Predictions asked for in the last cycle."""


def measure_daemon(say: Callable[[str], None]) -> tuple[Section, ...]:
    """The sections in the order of size. ``say`` is told what is measured next."""
    sections = []
    for size in (standin.Size(5_000, 500, 500, 50, 20), standin.Size()):
        say(f"{size.pending} pending and {size.running} running jobs, {size.chains} chains")
        sections.append(_section(size, _measured(size)))
    return tuple(sections)


def _section(size: standin.Size, cost: Cost) -> Section:
    later, answers = cost.cycles[1:], cost.answers[1:]
    title = ", ".join(f"{count:,} {name}" for name, count in asdict(size).items() if name != "started")
    return Section(
        f"One cycle: {title}",
        (
            ("first cycle", f"{cost.cycles[0]:.2f} s"),
            (f"later cycles, median of {len(later)}", f"{statistics.median(later):.2f} s"),
            ("later cycles, longest", f"{max(later):.2f} s"),
            ("of that: squeue and sinfo, text into columns", f"{statistics.median(answers):.2f} s"),
            ("predictions a cycle", f"{cost.decisions}"),
            ("questions to Slurm a cycle", f"{cost.calls:.1f}"),
            ("peak resident memory", f"{cost.peak_mb:.0f} MB"),
        ),
    )


def _measured(size: standin.Size) -> Cost:
    """In a process of its own, whose memory is the daemon's alone."""
    now = int(time.time())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        standin.install(folder, size, records(size.chains, now), now, SEED)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(folder, size.chains, now, theirs))
        process.start()
        theirs.close()
        try:
            cost: Cost = ours.recv()
        finally:
            process.join()
    return cost


def records(count: int, now: int) -> tuple[ChainRecord, ...]:
    """Chains whose link has run for some hours: each wants a decision in every cycle."""
    made = []
    for k in range(count):
        chain_id, owner = ChainId(f"bench-{k}"), f"user{k}"
        request = JobRequest("service", owner, 48 * HOUR, partition="part0")
        chain = Chain(chain_id, "service", owner, request, DoneCondition(links=100))
        start = now - (k % 12) * HOUR
        made.append(
            ChainRecord(
                chain,
                (
                    Link(
                        1,
                        chain.tag(1),
                        start,
                        LinkState.RUNNING,
                        JobId(_FIRST_LINK_ID + k),
                        start,
                        start,
                        start + 48 * HOUR,
                        JobState.RUNNING,
                    ),
                ),
            )
        )
    return tuple(made)


def _run(folder: Path, chains: int, now: int, to: Connection) -> None:
    from mirage.backends.recording import RecordingCluster
    from mirage.bootstrap.assembly import assemble
    from mirage.bootstrap.worlds import build_world
    from mirage.config.model import Config
    from mirage.domain.journal import EntryKind

    logging.basicConfig(filename=folder / "log", level=logging.INFO)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    url, state = f"sqlite:///{folder}/mirage.db", str(folder)
    config = Config.model_validate({"store": {"url": url}, "service": {"state": state, "runtime": state}})
    world = build_world(config)
    answers: list[float] = []
    timed = replace(world, cluster=RecordingCluster(world.cluster, _ignore, answers.append))
    service = assemble(config, timed, lambda: None)
    for record in records(chains, now):
        service.store.chains.save(record)
    cycles = []
    for _ in range(CYCLES):
        began = time.perf_counter()
        service.loop.cycle()
        service.store.journal.flush()
        cycles.append(time.perf_counter() - began)
    last = service.loop.status.time
    lines = service.store.journal.read(kinds=(EntryKind.DECISION,), limit=chains)
    decisions = sum(line.entry.time == last and line.entry.prediction is not None for line in lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    to.send(Cost(tuple(cycles), tuple(answers), peak, standin.calls(folder) / CYCLES, decisions))
    service.close()


def _ignore(previous: object, current: object) -> None:
    """What is seen is of no interest here."""
