"""From a configuration to a service that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.backends.acting.audit import Audited
from mirage.backends.localfiles import LocalFiles
from mirage.backends.recording import RecordingCluster
from mirage.bootstrap.deeds import DeedLog
from mirage.bootstrap.interface import Views, build_feed, build_interface
from mirage.bootstrap.journals import LoggedJournal
from mirage.bootstrap.observability import Observability, build_channels
from mirage.bootstrap.policies import build_guards, build_pacing, build_policy
from mirage.bootstrap.readiness import Readiness
from mirage.bootstrap.replays import build_replays
from mirage.bootstrap.windows import refill
from mirage.bootstrap.worlds import build_world
from mirage.control.commands import CommandQueue
from mirage.control.loop import ControlLoop, Outside
from mirage.control.pace import Pace
from mirage.control.questions import QuestionDesk
from mirage.control.watching import SnapshotWatch
from mirage.features.window import QueueWindows
from mirage.metrics.standing import Sources
from mirage.store.jobhistory import StoredJobs
from mirage.store.opening import open_store
from mirage.store.retention import Retention

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.api.server import ApiServer
    from mirage.backends.acting.audit import Deed
    from mirage.backends.acting.orders import OrderDesk
    from mirage.bootstrap.worlds import Lore, World
    from mirage.config.model import Config
    from mirage.control.guard import Guards
    from mirage.control.status import Status
    from mirage.control.wallclock import RealTimeClock
    from mirage.ports import Journal
    from mirage.replay.runs import ReplayRuns
    from mirage.store.opening import Store


def _nothing() -> None:
    pass


def _unknown(key: tuple[str, ...]) -> str:
    del key
    return "unknown"


@dataclass(slots=True)
class Service:
    """A loop with all that it runs on."""

    config: Config
    loop: ControlLoop
    guards: Guards
    store: Store
    clock: RealTimeClock
    pace: Pace
    commands: CommandQueue
    questions: QuestionDesk
    lore: Lore
    """What is known of the cluster beyond its queue."""
    jobs: StoredJobs
    """The jobs of all users, as the store has them."""
    windows: QueueWindows
    watchers: tuple[Callable[[Status], None], ...] = ()
    """Are told of each cycle, by the loop's thread: must be quick, wait for nothing and raise nothing."""
    watching: Observability = field(default_factory=Observability)
    """Metrics, and messages to people."""
    interface: ApiServer | None = None
    """Not started; ``None``: not wanted."""
    reload: Callable[[], None] = _nothing
    """Reads the configuration again before the next cycle. Any thread."""
    origin: Callable[[tuple[str, ...]], str] = _unknown
    """Where the value of a key comes from."""
    cycle_seconds: float | None = None
    """Real seconds that the last cycle took."""
    replays: ReplayRuns | None = None
    """Those that people ask for; ``None``: none."""

    def answer_question(self, alive: Callable[[], None]) -> bool:
        """Answer one that somebody has; whether there was one. For the loop's thread, between cycles."""
        return self.questions.answer(lambda question: self.loop.foresee(question, alive))

    def tell_cycle(self) -> None:
        """A cycle has ended, and what it wrote is stored."""
        for watcher in self.watchers:
            watcher(self.loop.status)

    def reconfigure(self, config: Config) -> None:
        """Decide and look by another configuration; to be called between cycles.

        Only what ``mirage.bootstrap.policies`` builds is changed. Raises ``ConfigError``; all is then as it
        was.
        """
        guards = build_guards(config, self.lore, self.watching.meters.predicted)
        self.watching.know(guards)
        if guards.wants.window and not self.guards.wants.window:
            refill(self.windows, self.store.snapshots, self.clock.now())
        self.loop.reconfigure(guards, build_policy(config, self.clock.rate))
        self.guards.close()
        self.pace.pacing = build_pacing(config)
        self.guards, self.config = guards, config

    def prune(self) -> dict[str, int]:
        """Delete what is too old; how many of what. Any thread. Raises ``StoreUnavailable``."""
        retention = Retention(**self.config.store.retention.model_dump())
        return self.store.prune(retention, self.clock.now())

    def close(self) -> None:
        """Let go of threads and connections. Raises ``StoreUnavailable`` where the last lines are not on disk."""
        self.questions.close()
        if self.replays is not None:
            self.replays.close()
        self.guards.close()
        self.watching.close()
        self.store.close()


def build(config: Config, alive: Callable[[], None]) -> Service:
    """The service that ``config`` describes. ``alive`` is called whenever the loop has got on within a cycle.

    Raises ``ConfigError``, ``MissingExtra``, ``UnsupportedSlurm`` and ``StoreUnavailable``.
    """
    return assemble(config, build_world(config), alive)


def assemble(config: Config, world: World, alive: Callable[[], None]) -> Service:
    """The service that ``config`` describes, on a cluster that is there already."""
    watching, channels = Observability(), tuple(build_channels(config.notifications))
    guards = build_guards(config, world.lore, watching.meters.predicted)
    watching.know(guards)
    policy = build_policy(config, world.clock.rate)
    pace, commands = Pace(build_pacing(config), np.random.default_rng()), CommandQueue()
    store = open_store(config.store.url, backups=Path(config.service.state))
    jobs, windows = StoredJobs(store.jobs, world.clock), QueueWindows()
    refill(windows, store.snapshots, world.clock.now())
    jobs.jobs(guards.wants.history)  # read before the first cycle, not within it
    journal = LoggedJournal(store.journal, alive, [watching.hear])
    watch = SnapshotWatch(store.waits, store.snapshots, config.store.snapshot_every)
    noted = _noted(world, watch, DeedLog(store.audit, world.clock), pace, watching, alive)
    loop = ControlLoop(_outside(noted, store, journal, commands, jobs, windows), guards, policy)
    watching.watch(config.notifications, channels, loop.status)
    watching.stand_on(Sources(lambda: loop.status, world.clock.now, lambda: store.journal.unsaved))
    service = Service(
        config=config,
        loop=loop,
        guards=guards,
        store=store,
        clock=world.clock,
        pace=pace,
        commands=commands,
        questions=QuestionDesk(commands.nudge),
        lore=world.lore if config.store.history else replace(world.lore, history=None),
        jobs=jobs,
        windows=windows,
        watchers=(watching.seen,),
        watching=watching,
    )
    if config.api.enabled:
        _add_interface(service, world.desk)
    return service


def _noted(
    world: World,
    watch: SnapshotWatch,
    deeds: DeedLog,
    pace: Pace,
    watching: Observability,
    alive: Callable[[], None],
) -> World:
    """The same world, of which each look and each act is noted."""

    def answered(seconds: float) -> None:
        pace.answered(seconds)
        watching.meters.polled(seconds)
        alive()

    def acted(deed: Deed) -> None:
        deeds.record(deed)
        watching.acted(deed)
        alive()

    cluster = RecordingCluster(world.cluster, watch.seen, answered)
    return replace(world, cluster=cluster, actuator=Audited(world.actuator, acted))


def _outside(
    world: World,
    store: Store,
    journal: Journal,
    commands: CommandQueue,
    jobs: StoredJobs,
    windows: QueueWindows,
) -> Outside:
    return Outside(
        cluster=world.cluster,
        actuator=world.actuator,
        estimator=world.estimator,
        waits=store.waits,
        clock=world.clock,
        store=store.chains,
        journal=journal,
        files=LocalFiles(),
        commands=commands,
        history=world.lore.jobs or jobs,
        standings=world.lore.standings,
        windows=windows,
    )


def _add_interface(service: Service, desk: OrderDesk | None) -> None:
    config, store = service.config, service.store
    feed = build_feed(store)
    service.watchers = (feed.cycled, *service.watchers)
    readiness = Readiness(lambda: service.loop.status, service.clock.now, service.pace, store)
    views = Views(feed, readiness, service.watching.telemetry(config.metrics.anonymous))
    service.replays = build_replays(service) if config.replays.most else None
    service.interface = build_interface(service, desk, views)
