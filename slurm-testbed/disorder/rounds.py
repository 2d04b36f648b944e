"""One round: some chains, a period of failures, a calm in which all chains must end, and the judgement."""

from __future__ import annotations

import json
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from chaos.judgement import judged
from mirage.client import Client, ClientError
from mirage.domain.chain import ChainStatus, HandoverPolicy
from mirage.domain.link import NO_JOB
from mirage.store.opening import open_store

from disorder.accounts import Accounting
from disorder.mishaps import Call, Mishaps
from disorder.people import People
from disorder.steps import TRAIN, judge_one_writer, judge_steps
from disorder.storm import Storm
from keepalive.daemon import OWNERS, Mirage
from keepalive.services import Service
from onehost import cluster
from onehost.people import person

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.chain import ChainRecord

    from keepalive.program import Program
    from keepalive.surroundings import Surroundings
    from onehost.layout import Layout

STORM_S = 20.0
CALM_S = 150.0
"""Real seconds after which a chain that has not ended is lost."""
SETTLE = "10s"
_LAG_S = 3.0

STEADY = "while :; do sleep 60; done\n"
STUBBORN = "trap '' TERM\nwhile :; do sleep 60; done\n"
CAREFUL = "trap 'exit 0' TERM USR1\nwhile :; do sleep 10; done\n"
READY = 'mkdir -p "$(dirname "$MIRAGE_HANDOVER_FILE")"\ntouch "$MIRAGE_HANDOVER_FILE"\n' + CAREFUL
FLAKY = "[ $((MIRAGE_LINK % 2)) -ne 0 ] || { sleep 60; exit 3; }\n" + STEADY
SCRIPTS = (STEADY, STUBBORN, CAREFUL, READY, FLAKY, TRAIN, TRAIN, TRAIN)
OPTIONS = (
    (),
    ("--handover=on-start", "--grace=60"),
    ("--handover=when-ready", "--grace=60"),
    ("--max-overlap=1m",),
    ("--steering=hold", "--lead=1m"),
    ("--steering=nice", "--lead=1m"),
    ("--steering=pin", "--lead=1m"),
)
ONE_WRITER = tuple(options for options in OPTIONS if not any("handover" in option for option in options))
FAILURES = "exit=continue,node=continue,cancelled=continue"


@dataclass(frozen=True, slots=True)
class Round:
    """Result of one seed."""

    seed: int
    broken: list[str]
    story: list[str]
    links: int
    requeued: int
    seconds: float


@dataclass
class Ground:
    """Runs rounds on one testbed, one after the other."""

    around: Surroundings
    program: Program
    layout: Layout
    work: Path

    def play(self, seed: int) -> Round:
        """Run one round. Raises ``TestbedError`` where the testbed itself fails."""
        rng, begun = random.Random(seed), time.monotonic()  # noqa: S311 - disorder, no secret
        cluster.repair(self.layout)
        mishaps = Mishaps(self.work / "line")
        mishaps.install()
        os.environ["PATH"] = f"{mishaps.path}:{_without(self.work, os.environ['PATH'])}"
        folder = self.work / f"{seed}-{int(time.time()):x}"
        mirage = Mirage(
            self.around, self.program, folder, rng.choice(("reactive", "fixed:2m", "quantile")), SETTLE
        )
        mirage.start()
        settings = cluster.need_running(self.layout)
        people = People(self.around, mirage, settings)
        storm = Storm(mirage, mishaps, settings, self.layout, rng, people)
        try:
            chains = self._submit(mirage, rng, folder.name)
            storm.blow(STORM_S, rng.randint(4, 10))
            cluster.restore(self.layout)
            people.restore()
            self._calm(mirage, chains, cluster.HangingNodes(settings, self.layout), storm.story)
        finally:
            mirage.stop()
        broken, links = self._judge(folder, mishaps, storm, chains)
        requeued = sum("is requeued" in line for line in storm.story)
        return Round(seed, broken, storm.story, links, requeued, round(time.monotonic() - begun, 1))

    def _submit(self, mirage: Mirage, rng: random.Random, stamp: str) -> list[str]:
        """Submit three or four chains; their ids."""
        asked = [self._chain(mirage, rng, f"c{stamp}-{k}", OWNERS[k % 2]) for k in range(rng.randint(3, 4))]
        with ThreadPoolExecutor(len(asked)) as pool:
            return [said.strip() for said in pool.map(lambda each: mirage.ask(*each), asked)]

    def _chain(self, mirage: Mirage, rng: random.Random, name: str, owner: str) -> tuple[str, ...]:
        """Write the script of a chain; its owner and the arguments of ``mirage``."""
        lines = ("--partition=cpu", "--nodes=1", "--exclusive")
        text, minutes = rng.choice(SCRIPTS), rng.randint(3, 5)
        wanted: tuple[str, ...] = (f"--links={rng.randint(2, 4)}", "--done-exit-code=none")
        options = rng.choice(OPTIONS)
        if text is TRAIN:
            lines, wanted, options = (*lines, "--signal=B:USR1@60"), (), rng.choice(ONE_WRITER)
        service = Service(name, owner, lines, text, options)
        script = mirage.folder / f"{name}.sh"
        script.write_text(service.text(minutes))
        script.chmod(0o644)
        more = (*wanted, f"--on-failure={FAILURES}", f"--name={name}", "--parsable")
        return (owner, "submit", *service.options, *more, str(script))

    def _calm(self, mirage: Mirage, chains: list[str], hanging: cluster.HangingNodes, story: list[str]) -> None:
        """Wait until all chains are over. As on a site, a node whose step does not end is set down."""
        end = time.monotonic() + CALM_S
        while time.monotonic() < end and not _all_over(mirage, chains):
            story.extend(f"  calm {node} was completing for too long and failed" for node in hanging.free())
            time.sleep(1.0)

    def _judge(self, folder: Path, mishaps: Mishaps, storm: Storm, chains: list[str]) -> tuple[list[str], int]:
        time.sleep(_LAG_S)
        calls = list(mishaps.calls())
        silences = tuple(self._slurms(call.at) for call in calls if call.name == "sacct" and not call.whole)
        store = open_store(f"sqlite:///{folder}/state/mirage.db")
        stored = store.chains.load()
        records = tuple(record for record in stored if record.chain.chain_id in chains)
        journal = [line.entry for line in reversed(store.journal.read(limit=1_000_000))]
        store.close()
        accounting = Accounting(self.around, chains, silences, tuple(map(self._slurms, storm.kills)))
        jobs = (link for record in records for link in record.links if link.job_id != NO_JOB)
        accounting.read({link.job_id for link in jobs if not accounting.may_lack(link)})
        broken = [*accounting.doubles(), *judged(records, journal, accounting), *blind(calls)]
        for record in records:
            broken += self._judge_writers(record, accounting)
        broken += [f"{r.chain.chain_id} is garbage and was accepted" for r in stored if r not in records]
        broken += [f"{chain} is not stored" for chain in set(chains) - {r.chain.chain_id for r in records}]
        return broken, sum(map(len, accounting.jobs.values()))

    def _judge_writers(self, record: ChainRecord, accounting: Accounting) -> Iterator[str]:
        """Judge by what the links wrote, and by when they ran."""
        chain = record.chain
        if chain.handover.policy is HandoverPolicy.NONE:
            yield from judge_one_writer(chain.chain_id, accounting.runs_of(record))
        steps = person(chain.owner).home / f"steps-{chain.chain_id}"
        if TRAIN in (chain.request.batch.text if chain.request.batch else ""):
            text = steps.read_text() if steps.exists() else ""
            yield from judge_steps(chain.chain_id, text, done=record.status is ChainStatus.DONE)
        steps.unlink(missing_ok=True)

    def _slurms(self, real: float) -> float:
        clock = json.loads(self.layout.clock.read_text())
        return float(clock["t0"] + (real - clock["t0"]) * clock["rate"])


def blind(calls: list[Call]) -> Iterator[str]:
    """Submissions that began after a failed poll of the queue.

    A query of a killed daemon may end after those of the next daemon: its output counts for nothing.
    """
    polls, daemons = list[Call](), list[int]()
    for call in calls:
        if call.name == "queue":
            if call.caller not in daemons:
                daemons.append(call.caller)
            if call.caller == daemons[-1]:
                polls.append(call)
        elif call.name == "sbatch":
            before = [poll for poll in polls if poll.at <= call.begun]
            if not (before and before[-1].whole):
                yield f"sbatch at {call.begun:.1f} although the last poll of the queue had failed"


def _all_over(mirage: Mirage, chains: list[str]) -> bool:
    try:
        found = {chain.id: chain for chain in Client(mirage.socket).chains(everybody=True)}
    except ClientError:
        return False
    return all(
        chain in found and found[chain].over and all(ln.state in ("ended", "lost") for ln in found[chain].links)
        for chain in chains
    )


def _without(folder: Path, path: str) -> str:
    return ":".join(each for each in path.split(":") if not each.startswith(str(folder)))


def document(played: Round) -> str:
    """One line, for programs."""
    return json.dumps(asdict(played))
