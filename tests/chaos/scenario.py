"""One seed: a small cluster with its users, some chains, a storm, and the calm in which all must end."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from chaos.facade import Slurm
from chaos.life import Daemon, SkewedClock, befallen
from chaos.line import Line
from chaos.oracle import Faults, Oracle
from chaos.people import DEEDS, OWNERS, SCRIPT, People
from chaos.slurmctld import Slurmctld
from chaos.steps import Scripts
from chaos.weather import LARGEST_JUMP, Weather

from mirage.backends.simulated import SimulatedExecution
from mirage.config.loading import load_config
from mirage.domain.chain import (
    Chain,
    ChainId,
    ChainRecord,
    ChainStatus,
    DoneCondition,
    HandoverPolicy,
    HandoverSettings,
    Steering,
)
from mirage.domain.command import AddChain, ResumeChain
from mirage.domain.errors import StoreUnavailable
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import BatchScript, JobId, JobRequest, JobState, WarnSignal
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.config.model import Config

NOON = 1_790_000_000
HOUR = 3_600
STORM = 4 * HOUR
CALM = 12 * HOUR
PATIENCE = 3_000 + LARGEST_JUMP
"""Seconds: the longest wait of protected mode, a back-off that began before it, and a clock that was set back."""
GOALS = (60, 150)
"""Steps of a training run, from and to."""
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Verdict:
    """The result of one seed."""

    seed: int
    broken: tuple[str, ...]
    story: tuple[str, ...]
    links: int
    deaths: int
    cycles: int
    steps: int = 0
    deeds: int = 0
    """Number of people's actions; each is a line of the story, as each failure is."""

    def __str__(self) -> str:
        lines = [f"seed {self.seed}:", *(f"  BROKEN {each}" for each in self.broken), "  the story:"]
        return "\n".join([*lines, *(f"    {each}" for each in self.story)])


@dataclass(frozen=True)
class Climate:
    """The events that may happen in a scenario."""

    faults: bool = True
    deeds: tuple[Callable[[People], None], ...] = DEEDS
    most_deeds: int = 12


ALL = Climate()
NO_PEOPLE = Climate(deeds=())


def play(seed: int, storm: int = STORM, climate: Climate = ALL) -> Verdict:
    """The scenario of ``seed`` from its beginning to its end, in seconds of this process."""
    faults, said = Faults(), logging.getLogger("mirage")
    before = said.level
    said.addHandler(faults)
    said.setLevel(faults.level)  # a storm makes thousands of warnings
    try:
        with _room() as folder:
            return Scenario(seed, Path(folder), faults, climate).play(storm)
    finally:
        said.setLevel(before)
        said.removeHandler(faults)


@dataclass
class Scenario:
    """All that one seed draws. Each part has a separate random stream, so that none changes the others."""

    seed: int
    folder: Path
    faults: Faults
    climate: Climate
    story: list[str] = field(default_factory=list)
    cycles: int = 0

    def __post_init__(self) -> None:
        streams = np.random.default_rng(self.seed).spawn(9)
        self.rng, self.fates, self.users, self.steps, *others = streams
        self.owners = others[3]
        nodes = tuple(f"n{k}" for k in range(1, 1 + int(self.rng.integers(4, 9))))
        self.ctld = Slurmctld(nodes, NOON, self._fate, epilog=int(self.rng.integers(0, 40)))
        self.slurm = Slurm(self.ctld, min_job_age=int(self.rng.choice([2, 60, 300])))
        scripts = Scripts(self.ctld, others[4])
        self.ctld.programs.append(scripts)
        self.oracle = Oracle(self.ctld, PATIENCE, scripts, self._intended)
        self.chains = self._chains()
        self.trained = self._trained() if self.climate.deeds else []
        scripts.goals = {chain.chain_id: int(self.owners.integers(*GOALS)) for chain in self.trained}
        self.chains += self.trained
        self.oracle.chains = {chain.chain_id: chain for chain in self.chains}
        line = Line(self.slurm, self.oracle, others[0], self.tell, self._signalled)
        self.daemon = Daemon(self._config(), line, SkewedClock(self.ctld), others[1], self.tell)
        self.weather = Weather(self.daemon, self.oracle, others[2], self.tell)
        self.people = People(self.daemon, self.oracle, self.owners, self.tell)

    def tell(self, what: str) -> None:
        """A line of the story."""
        self.story.append(f"{self.ctld.now - NOON:>6} {what}")

    def play(self, storm: int) -> Verdict:
        """The storm, then the calm."""
        with befallen(self.daemon):
            self._live_through(storm)
        everything = [job for job in self.ctld.everything() if job.tag]
        broken = (*self.oracle.broken, *self.faults.heard)
        counts = len(everything), self.daemon.deaths, self.cycles, self._count_steps(), self.people.count
        return Verdict(self.seed, broken, tuple(self.story), *counts)

    def _count_steps(self) -> int:
        return sum(map(len, self.oracle.scripts.steps.values()))

    def _live_through(self, storm: int) -> None:
        self._people_come(storm)
        faults = int(self.rng.integers(4, 24))
        if self.climate.faults:
            self.weather.plan(NOON + 300, NOON + storm, faults)
        if self.climate.deeds:
            deeds = int(self.owners.integers(2, self.climate.most_deeds))
            self.people.plan(self.climate.deeds, NOON + 300, NOON + storm, deeds)
        for chain in self.chains:
            self._add(chain, self.owners if chain in self.trained else self.rng)
        self._cycle_until(NOON + storm)
        self.tell("the storm is over")
        self.weather.clear()
        self.people.clear()
        calm = 2 * CALM if self.people.drained_for_good else CALM  # the jobs of others wait as well
        self._calm(NOON + storm + calm)
        self._judge()

    # Time

    def _cycle_until(self, until: int) -> None:
        while self.ctld.now < until and not self.oracle.broken:
            self._step()

    def _calm(self, until: int) -> None:
        while self.ctld.now < until and not self.oracle.broken:
            self._step()
            records = [record for record in self._records() if record.chain.chain_id in self.oracle.chains]
            self.oracle.check_supplied(records)
            self.oracle.check_pauses(records)
            if len(records) == len(self.chains) and all(record.over and not record.live for record in records):
                break
            for record in records:
                if record.status is ChainStatus.PAUSED:
                    self.daemon.ask(ResumeChain(record.chain.chain_id, "chaos"))
                    self.oracle.resume_asked(record.chain.chain_id)
            known = {record.chain.chain_id for record in records}
            for chain in self.chains:
                if chain.chain_id not in known:
                    self.daemon.ask(AddChain(chain, "chaos"))

    def _step(self) -> None:
        if self.weather.doomed and self.daemon.runs:
            (self.daemon.kill if self.weather.doomed == "killed" else self.daemon.stop)()
            self.oracle.daemon_ended()
        self.weather.doomed = ""
        if not self.daemon.runs and self.ctld.now >= self.weather.daemon_away_until:
            self._start()
        if self.daemon.runs:
            self._cycle()
        self.ctld.run_until(self.ctld.now + int(self.steps.integers(40, 80)))

    def _cycle(self) -> None:
        mishaps = self.daemon.mishaps
        self.oracle.cycle_begins()
        self.daemon.cycle()
        self.oracle.cycle_ends(lived=self.daemon.runs, unscathed=self.daemon.mishaps == mishaps)
        if not self.daemon.runs:
            self.oracle.daemon_ended()
        self.cycles += 1

    def _start(self) -> None:
        try:
            self.daemon.start()
        except StoreUnavailable as error:
            self.tell(f"the daemon does not start: {error}")

    def _records(self) -> tuple[ChainRecord, ...]:
        return self.daemon.service.store.chains.load() if self.daemon.service else ()

    def _judge(self) -> None:
        if self.oracle.broken:
            return
        assert self.daemon.service is not None, self.story[-3:]
        store = self.daemon.service.store
        store.journal.flush()
        lines = store.journal.read(limit=1_000_000)
        records = [record for record in store.chains.load() if record.chain.chain_id in self.oracle.chains]
        self.oracle.check_end(records, [line.entry for line in reversed(lines)])
        self.daemon.stop()

    def _intended(self, tag: str) -> bool:
        """By the database on disk, whatever the daemon remembers."""
        _, chain_id, index = tag.split(":")
        query = 'SELECT 1 FROM links WHERE chain_id = ? AND "index" = ?'
        with closing(sqlite3.connect(self.folder / "mirage.db")) as database:
            return bool(database.execute(query, (chain_id, int(index))).fetchall())

    # The cluster and its people

    def _config(self) -> Config:
        """Defaults, but for what draws threads and disks into it that have no part."""
        shutil.copy(Path(_empty_database().name, "mirage.db"), self.folder)
        file = self.folder / "mirage.toml"
        predictor = self.rng.choice(["reactive", "fixed:10m", "fixed:25m", "quantile", "average"])
        file.write_text(
            f'[service]\nstate = "{self.folder}"\nruntime = "{self.folder}"\n'
            f'[loop]\npredictor = "{predictor}"\nbudget = 600\n'
            "[api]\nenabled = false\n[store]\nsnapshot_every = 0\nhistory = 0\n"
        )
        return load_config(file).config

    def _chains(self) -> list[Chain]:
        return [self._chain(k) for k in range(int(self.rng.integers(2, 5)))]

    def _chain(self, k: int) -> Chain:
        rng, name = self.rng, f"c{k}"
        batch = self._batch(name, "#!/bin/sh\nexec serve\n")
        limit = 60 * int(rng.integers(15, 60))
        request = JobRequest(
            name, "", limit, nodes=int(rng.integers(1, 3)), batch=batch, requeue=bool(rng.random() < 0.7)
        )
        recoveries = [FailurePolicy(each, retries=4, backoff=60) for each in FailureAction]
        failures = FailurePolicies(
            exit=recoveries[int(rng.choice(3, p=[0.3, 0.65, 0.05]))],
            node=recoveries[int(rng.choice(3, p=[0.8, 0.15, 0.05]))],
            cancelled=recoveries[int(rng.choice(3, p=[0.3, 0.4, 0.3]))],
        )
        handover = HandoverSettings(
            HandoverPolicy(str(rng.choice(list(HandoverPolicy)))),
            WarnSignal("TERM", 60),
            int(rng.choice([0, 300])),
        )
        return Chain(
            ChainId(name),
            name,
            OWNERS[k % 2],
            request,
            DoneCondition(0 if rng.random() < 0.2 else None, links=int(rng.integers(3, 7))),
            failures,
            handover,
            Steering(str(rng.choice(list(Steering), p=[0.3, 0.3, 0.1, 0.15, 0.15]))),
            lead=int(rng.choice([0, 300])),
        )

    def _batch(self, name: str, text: str) -> BatchScript:
        home = self.folder / name
        (home / ".mirage").mkdir(parents=True)
        (home / SCRIPT).write_text(text)
        return BatchScript(text, (), (("PATH", "/usr/bin:/bin"),), str(home))

    def _trained(self) -> list[Chain]:
        return [self._training(k) for k in range(int(self.owners.integers(1, 3)))]

    def _training(self, k: int) -> Chain:
        """One writer; it is done when a link exits with 0 that was not warned of its limit."""
        rng, name = self.owners, f"t{k}"
        warn = WarnSignal("USR1", 60 * int(rng.integers(2, 6)), batch_only=True)
        request = JobRequest(
            name,
            "",
            60 * int(rng.integers(15, 40)),
            nodes=int(rng.integers(1, 3)),
            batch=self._batch(name, "#!/bin/sh\nexec train\n"),
            requeue=bool(rng.random() < 0.7),
            warn=warn,
        )
        go_on = FailurePolicy(FailureAction.CONTINUE)
        cancelled = FailurePolicy(FailureAction.STOP if rng.random() < 0.5 else FailureAction.CONTINUE)
        return Chain(
            ChainId(name),
            name,
            OWNERS[k % 2],
            request,
            DoneCondition(),
            FailurePolicies(exit=go_on, node=go_on, cancelled=cancelled),
            steering=Steering(str(rng.choice(list(Steering), p=[0.3, 0.2, 0.1, 0.2, 0.2]))),
            lead=int(rng.choice([0, 300])),
        )

    def _add(self, chain: Chain, rng: np.random.Generator) -> None:
        """Some are there from the start, others are added as time goes by, if the daemon answers just then."""
        if rng.random() < 0.5:
            self.ctld.at(NOON, lambda: self.daemon.ask(AddChain(chain, "chaos")))
        else:
            self.ctld.at(NOON + int(rng.integers(HOUR)), lambda: self.daemon.ask(AddChain(chain, "chaos")))

    def _people_come(self, storm: int) -> None:
        """Others want about as much as there is."""
        end = NOON + storm + HOUR
        time = float(NOON)
        gap = 2.0 * 1_200 / len(self.ctld.nodes)
        while (time := time + float(self.users.exponential(gap))) < end:
            nodes, limit = int(self.users.integers(1, 4)), 60 * int(self.users.integers(5, 60))
            request = JobRequest("job", "carol", limit, nodes=nodes)
            self.ctld.at(int(time), lambda request=request: self.ctld.submit(request))

    def _fate(self, request: JobRequest) -> SimulatedExecution:
        """How long a job runs and how it ends."""
        kind, share = float(self.fates.random()), float(self.fates.random())
        ran = max(1, int(share * request.limit))
        if not request.tag:
            return SimulatedExecution(ran)
        if kind < 0.75:
            return SimulatedExecution(request.limit, JobState.TIMEOUT)
        if kind < 0.85:
            return SimulatedExecution(ran)
        if kind < 0.9:
            return SimulatedExecution(max(1, int(share * 40)), JobState.FAILED, 1)
        return SimulatedExecution(ran, *((JobState.FAILED, 3) if kind < 0.97 else (JobState.OUT_OF_MEMORY, 125)))

    def _signalled(self, job_id: JobId, signal: str) -> None:
        """Most exit on the signal, some sleep on."""
        del signal
        if self.fates.random() < 0.8:
            self.oracle.obeyed.add(job_id)
            self.ctld.obey(job_id, int(self.fates.integers(1, 50)))


def _room() -> TemporaryDirectory[str]:
    """In memory where there is such a place: what is on disk is not what is tried here."""
    return TemporaryDirectory(prefix="mirage-chaos-", dir=MEMORY if MEMORY.is_dir() else None)


@cache
def _empty_database() -> TemporaryDirectory[str]:
    """The directory of one with this version's tables, made once a process."""
    folder = _room()
    open_store(f"sqlite:///{folder.name}/mirage.db").close()
    return folder
