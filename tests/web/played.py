"""The demo's service, played in simulated time as fast as it can to a fixed time: the same at each call.

Daemon, simulated cluster, background load and chains are those of ``mirage demo``. Only the clock differs: no
cycle waits for real time, and no decision depends on how long a computation takes.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from instants import HOUR
from working import play

from mirage.backends.background_files import BackgroundFiles, CheckLimits
from mirage.backends.file_check import Viewer, check_files
from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.simulated import compile_simulator, simulated_connection
from mirage.cli.demo import RATE, SEED, begin_demo, demo_chains, demo_configuration
from mirage.config.loading import load_config
from mirage.control.clocks import SimulatedTicks
from mirage.daemon.supervision import Supervisor
from mirage.domain.chain import ChainId
from mirage.domain.command import AddChain
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.api.port import ApiService
    from mirage.bootstrap.service import DaemonService
    from mirage.control.status import Cycle
    from mirage.domain.chain import Chain
    from mirage.domain.files import FileState
    from mirage.domain.job import Seconds

BEGAN = 1_795_075_200
"""2026-11-19 08:00 UTC: when the daemon starts."""
DEMO, SWEEP, END = BEGAN + 47 * HOUR + 24 * 60, BEGAN + 70 * HOUR, BEGAN + 94 * HOUR
"""When the demo is shown; when a chain of tasks is requested; when everything else is shown."""
OWNER = "ada"
DIRECTORY = "/home/ada/work"
_BUDGET = 600.0
"""Real seconds that a prediction or a check of files may take: a slow machine decides the same."""


class SteppedClock:
    """A clock that stands still until it is moved."""

    rate = 1.0

    def __init__(self, now: Seconds) -> None:
        self._now = now

    def now(self) -> Seconds:
        return self._now

    def advance(self, until: Seconds) -> None:
        self._now = until

    def link_states(self) -> tuple[int, ...]:
        return ()


@dataclass
class PlayedDemo:
    """The service at the time to which it was played."""

    service: DaemonService
    clock: SteppedClock
    cycle: Cycle
    supervisor: Supervisor
    ended: threading.Event = field(default_factory=threading.Event)

    def play(self, until: Seconds) -> None:
        """Run every cycle up to a time, at the interval of the demo."""
        ticks = SimulatedTicks(self.clock, self.service.pace.shortest, until)
        while ticks.wait(max(self.cycle.wake, self.clock.now() + 1), deciding=True):
            self.cycle = self.supervisor.cycle()
            assert self.supervisor.failures == 0, self.service.loop.status.problem

    def request(self, chain: Chain) -> None:
        """Add a chain in the next cycle."""
        self.service.commands.put(AddChain(chain, chain.owner))

    @property
    def shown(self) -> ApiService:
        """What the API and the page read."""
        assert self.service.interface is not None
        return self.service.interface.service

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer prediction requests, as the loop's thread does between cycles."""
        thread = threading.Thread(target=self._answer)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join()

    def _answer(self) -> None:
        while not self.ended.wait(0.02):
            self.service.answer_question(lambda: None)


def _check_files(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
    """Check as this process's user: the owner is no user of this machine."""
    return check_files(paths, Viewer(owner, os.getuid(), own=True))


@contextlib.contextmanager
def played(folder: Path, until: Seconds, seed: int = SEED) -> Iterator[PlayedDemo]:
    """The demo in ``folder``, from its start to a time."""
    file = folder / "mirage.toml"
    file.write_text(demo_configuration(str(folder), OWNER, 8_642, RATE, seed, "error"))
    loaded = load_config(file)
    loop = loaded.config.loop.model_copy(update={"budget": _BUDGET})
    config = loaded.config.model_copy(update={"loop": loop})
    for name in (config.service.state, config.service.runtime):
        Path(name).mkdir(mode=0o700)
    compile_simulator()
    clock = SteppedClock(BEGAN)
    files = BackgroundFiles(_check_files, limits=CheckLimits(timeout=_BUDGET, at_once=_BUDGET))
    world = replace(simulated_connection(config.cluster.simulated, clock), files=files)
    service = assemble(config, world, lambda: None)
    service.origin = loaded.origin
    try:
        begin_demo(service, demo_chains(OWNER, DIRECTORY))
        supervisor = Supervisor(service)
        demo = PlayedDemo(service, clock, supervisor.cycle(), supervisor)
        demo.play(until)
        yield demo
    finally:
        service.close()


def sweep(tasks: Path) -> Chain:
    """A chain of two nodes whose links run tasks; their state is in the directory ``tasks``."""
    [like] = [chain for chain in demo_chains(OWNER, DIRECTORY) if chain.name == "train-llm"]
    request = replace(like.request, name="lr-sweep", limit=8 * HOUR, nodes=2, warn=None)
    return replace(like, chain_id=ChainId("lr-sweep"), name="lr-sweep", request=request, tasks_state=str(tasks))


def run_tasks(demo: PlayedDemo, tasks: Path) -> None:
    """Run sample tasks by the real agent in the links that the chain ``sweep`` has had."""
    [record] = [each for each in demo.service.loop.status.chains if each.chain.tasks_state]
    known = demo.service.loop.status.snapshot.links
    ran = [link for link in record.links if link.started]
    times = {int(link.job_id): (link.start, min(link.end, demo.clock.now())) for link in ran}
    [nodes] = {known[link.tag].node_list for link in ran}
    play(tasks, times, expand(nodes))
