"""Cost of one cycle of the daemon on a large and busy cluster."""

from __future__ import annotations

import logging
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.bench import BenchSection, standin
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition, Steering
from mirage.domain.job import JobId, JobRequest, JobState
from mirage.domain.link import Link, LinkState
from mirage.ownprocess import spawning

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from mirage.bootstrap.cluster import ClusterConnection
    from mirage.bootstrap.service import DaemonService
    from mirage.config.model import Config
    from mirage.daemon.supervision import Supervisor

SEED = 1
HOUR = 3_600
CYCLES = 9
"""The first one reads everything for the first time and is listed separately."""
POLL = 60
"""Seconds between two cycles by default (``loop.interval``)."""
SIZES = (standin.Size(5_000, 500, 500, 50, 20), standin.Size(), standin.Size(100_000, 10_000, 10_000, 1_000, 400))
_FIRST_LINK_ID = 5_000_000
DAY = 24 * HOUR
DAYS = tuple(
    standin.Size(pending, 500, 500, chains, max(1, pending // 250))
    for pending in (500, 5_000)
    for chains in (1, 3, 10)
)
_RPCS = {"squeue": 2, "own": 2, "sinfo": 2, "scontrol": 2, "other": 2}
"""RPCs to slurmctld of each command, by sdiag of Slurm 22.05; of other commands at most."""


@dataclass(frozen=True, slots=True)
class CycleCost:
    """Cost of the cycles of one process."""

    cycles: tuple[float, ...]
    """Real seconds of each, the commands' own time included."""
    worked: tuple[float, ...]
    """CPU seconds of each, the commands' included."""
    answers: tuple[float, ...]
    """Of that, seconds until the commands' text was read into columns."""
    peak_mb: float
    """Largest resident size of the process."""
    decisions: int
    """Predictions asked for in the last cycle."""
    calls: float = 0.0
    """RPCs per cycle."""


def measure_daemon(
    say: Callable[[str], None], sizes: tuple[standin.Size, ...] = SIZES
) -> tuple[BenchSection, ...]:
    """For each size the cycle on Slurm's commands and on the simulated cluster. ``say`` gets the next title."""
    sections = []
    for size in sizes:
        for cluster, measured in _BEHIND.items():
            say(f"{cluster}: {size.pending} pending jobs, {size.nodes} nodes, {size.chains} chains")
            sections.append(_section(f"One cycle on {cluster}", size, measured(size)))
    return tuple(sections)


def measure_day(
    say: Callable[[str], None], sizes: tuple[standin.Size, ...] = DAYS, hours: int = 24
) -> tuple[BenchSection, ...]:
    """A day of Slurm's time of a daemon of one user, for each size: RPCs to slurmctld, CPU time, memory.

    ``hours``: of the day, that are played.
    """
    sections = []
    for size in sizes:
        say(f"a day: {size.pending} pending jobs, {size.chains} chains")
        with tempfile.TemporaryDirectory() as name:
            folder, now = Path(name), int(time.time())
            standin.install_hours(folder, size, hours + 1, now, SEED)
            section: BenchSection = _apart(partial(_day_on_commands, hours), folder, size, now)
            sections.append(section)
    return tuple(sections)


def _section(title: str, size: standin.Size, cost: CycleCost) -> BenchSection:
    later, worked, answers = cost.cycles[1:], cost.worked[1:], cost.answers[1:]
    of_size = ", ".join(f"{count:,} {name}" for name, count in asdict(size).items() if name != "started")
    return BenchSection(
        f"{title}: {of_size}",
        (
            ("first cycle", f"{cost.cycles[0]:.2f} s"),
            (f"later cycles, median of {len(later)}", f"{statistics.median(later):.2f} s"),
            ("later cycles, longest", f"{max(later):.2f} s"),
            ("later cycles, CPU time, commands included", _spread(worked)),
            ("of the real time: until the snapshot is there", f"{statistics.median(answers):.2f} s"),
            ("predictions per cycle", f"{cost.decisions}"),
            ("RPCs per cycle", f"{cost.calls:.1f}"),
            ("peak resident memory", f"{cost.peak_mb:.0f} MB"),
        ),
    )


def _spread(seconds: tuple[float, ...]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f})"


def _behind_commands(size: standin.Size) -> CycleCost:
    now = int(time.time())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        standin.install(folder, size, records(size.chains, now), now, SEED)
        cost: CycleCost = _apart(_on_commands, folder, size, now)
        return replace(cost, calls=standin.calls(folder) / CYCLES)


def _behind_simulation(size: standin.Size) -> CycleCost:
    with tempfile.TemporaryDirectory() as name:
        cost: CycleCost = _apart(_on_simulation, Path(name), size, int(time.time()))
        return cost


_BEHIND = {"Slurm's commands": _behind_commands, "the simulated cluster": _behind_simulation}


def _apart(work: Callable[[Path, standin.Size, int, Connection], None], *arguments: object) -> Any:
    """Run in a separate process, whose memory is that of the daemon (and of a simulated cluster) alone."""
    context = spawning()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(*arguments, theirs))
    process.start()
    theirs.close()
    try:
        found = ours.recv()
    finally:
        process.join()
    return found


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


def _on_commands(folder: Path, size: standin.Size, now: int, to: Connection) -> None:
    """A daemon on stand-ins for Slurm's commands."""
    from mirage.bootstrap.backends import build_world

    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    to.send(_cycled(folder, build_world(_config(folder)), records(size.chains, now), lambda: None))


def _on_simulation(folder: Path, size: standin.Size, now: int, to: Connection) -> None:
    """A daemon on a simulated cluster of that size, which moves on between two cycles."""
    from mirage.bench.loaded_cluster import crowded_cluster

    crowd = crowded_cluster(size, records(size.chains, now), SEED)
    to.send(
        _cycled(folder, crowd.world(), crowd.chains, lambda: crowd.cluster.advance(crowd.cluster.now() + POLL))
    )


def _config(folder: Path) -> Config:
    from mirage.config.model import Config

    url, state = f"sqlite:///{folder}/mirage.db", str(folder)
    return Config.model_validate({"store": {"url": url}, "service": {"state": state, "runtime": state}})


def _cycled(
    folder: Path, world: ClusterConnection, chains: tuple[ChainRecord, ...], move_on: Callable[[], None]
) -> CycleCost:
    """The loop of a daemon, ``CYCLES`` times."""
    from mirage.backends.wrappers import InstrumentedCluster
    from mirage.bootstrap.assembly import assemble
    from mirage.domain.journal import EntryKind

    logging.basicConfig(filename=folder / "log", level=logging.INFO)
    answers: list[float] = []
    timed = replace(world, cluster=InstrumentedCluster(world.cluster, _ignore, answers.append))
    service = assemble(_config(folder), timed, lambda: None)
    for record in chains:
        service.store.chains.save(record)
    cycles, worked = [], []
    for _ in range(CYCLES):
        began, work = time.perf_counter(), _work()
        service.loop.cycle()
        service.store.journal.flush()
        cycles.append(time.perf_counter() - began)
        worked.append(_work() - work)
        move_on()
    last = service.loop.status.time
    lines = service.store.journal.read(kinds=(EntryKind.DECISION,), limit=len(chains))
    decisions = sum(line.entry.time == last and line.entry.prediction is not None for line in lines)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    service.close()
    return CycleCost(tuple(cycles), tuple(worked), tuple(answers), peak, decisions)


def _work() -> float:
    """CPU seconds of this process and of the commands that it has run."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _ignore(previous: object, current: object) -> None:
    """Ignore snapshots: nothing listens here."""


def day_records(count: int, owner: str, now: int) -> tuple[ChainRecord, ...]:
    """Chains of one user whose 48-hour links have begun at times spread over the last 48 hours; pinned."""
    made = []
    for k, record in enumerate(records(count, now)):
        chain = replace(record.chain, owner=owner, steering=Steering.AUTO)
        start = now - (2 * k + 1) * 24 * HOUR // count
        link = replace(record.links[0], planned=start, submit=start, start=start, end=start + 48 * HOUR)
        made.append(replace(record, chain=chain, links=(link,)))
    return tuple(made)


def _day_on_commands(hours: int, folder: Path, size: standin.Size, now: int, to: Connection) -> None:
    """A daemon of this user on stand-ins for Slurm's commands, its clock moved from cycle to cycle."""
    from mirage.backends.cli import CliCluster
    from mirage.backends.execution import CommandRunner
    from mirage.bootstrap.assembly import assemble
    from mirage.bootstrap.cluster import ClusterConnection, ClusterInfo, command_environment, own_user
    from mirage.bootstrap.policies import build_policy
    from mirage.daemon.supervision import Supervisor

    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    logging.basicConfig(filename=folder / "log", level=logging.INFO)
    config, user = _config(folder), own_user()
    chains = day_records(size.chains, user, now)
    jobs = standin.OwnJobs(folder, chains, now)
    cluster = CliCluster(CommandRunner(command_environment(config.cluster)), jobs, user)
    world = ClusterConnection(cluster, jobs, jobs, jobs, ClusterInfo(sharing=jobs), user)
    service = assemble(config, world, lambda: None)
    for record in chains:
        service.store.chains.save(record)
    supervisor = Supervisor(service)
    jobs.move_on(now)
    supervisor.cycle()  # reads everything for the first time
    day = _played(folder, service, supervisor, jobs, hours * HOUR)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    service.loop.reconfigure(service.guards, replace(build_policy(config, 1.0), queue_age=0))
    service.pace.pacing = replace(service.pace.pacing, calm=0)
    hour = _played(folder, service, supervisor, jobs, HOUR)
    ended = sum(link.final for record in service.loop.status.chains for link in record.links)
    service.close()
    to.send(_day_section(size, day, hour, peak, ended))


@dataclass(frozen=True, slots=True)
class _Played:
    """What a time of a daemon has cost."""

    seconds: int
    cycles: int
    calls: Counter[str]
    daemon: float
    """CPU seconds of its cycles."""
    commands: float
    """CPU seconds of the commands."""

    @property
    def rpcs_per_hour(self) -> float:
        """RPCs to slurmctld."""
        return sum(_RPCS[name] * count for name, count in self.calls.items()) * HOUR / self.seconds

    def a_day(self, seconds: float) -> str:
        """CPU seconds, as those of a day."""
        return f"{seconds * DAY / self.seconds:.1f} s"


def _played(
    folder: Path, service: DaemonService, supervisor: Supervisor, jobs: standin.OwnJobs, seconds: int
) -> _Played:
    """The cycles of that time; between them nothing is measured."""
    until, cycles, daemon, commands = jobs.now() + seconds, 0, 0.0, 0.0
    before, acts = Counter(standin.calls_by_name(folder)), jobs.acts
    wake, calm = jobs.now(), False
    while True:
        service.pace.rest(calm)
        following = max(1, min(round(service.pace.interval()), wake - jobs.now()))
        if jobs.now() + following > until:
            break
        jobs.move_on(jobs.now() + following)
        began = os.times()
        cycle = supervisor.cycle()
        ended = os.times()
        cycles += 1
        daemon += ended.user + ended.system - began.user - began.system
        commands += ended.children_user + ended.children_system - began.children_user - began.children_system
        wake, calm = cycle.wake, cycle.calm
    calls = Counter(standin.calls_by_name(folder))
    calls.subtract(before)
    calls["other"] = jobs.acts - acts
    return _Played(seconds, cycles, calls, daemon, commands)


def _day_section(size: standin.Size, day: _Played, hour: _Played, peak: float, ended: int) -> BenchSection:
    of_size = f"{size.pending:,} pending, {size.running:,} running, {size.chains} chains"
    return BenchSection(
        f"A user's daemon, {day.seconds // HOUR} hours: {of_size}",
        (
            ("RPCs to slurmctld per hour", f"{day.rpcs_per_hour:.1f}"),
            ("cycles", f"{day.cycles}"),
            ("of these with the whole queue", f"{day.calls['squeue']}"),
            ("links ended", f"{ended}"),
            ("CPU time of the cycles, a day", day.a_day(day.daemon)),
            ("CPU time of the commands (stand-ins), a day", day.a_day(day.commands)),
            ("peak resident memory", f"{peak:.0f} MB"),
            ("RPCs per hour, each poll with the queue", f"{hour.rpcs_per_hour:.1f}"),
            ("CPU time a day, each poll with the queue", hour.a_day(hour.daemon)),
        ),
    )
