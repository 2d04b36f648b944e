"""From a configuration to a service that is ready to run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.api.access.holders import Holders
from mirage.backends.cluster_queries import CheckedCluster
from mirage.backends.wrappers import Audited, InstrumentedCluster, Leading
from mirage.bootstrap.backends import build_world
from mirage.bootstrap.identities import ClusterIdentity, PuttingAway
from mirage.bootstrap.interface import Views, build_feed, build_interface, build_replays
from mirage.bootstrap.leadership import controller_script, writing_condition
from mirage.bootstrap.observability import Observability, build_channels
from mirage.bootstrap.policies import build_guards, build_pacing, build_policy, models_in_shadow
from mirage.bootstrap.readiness import ReadinessCheck
from mirage.bootstrap.records import ActionAudit, LoggedChains, LoggedJournal, SnapshotWatch, refill
from mirage.control.clocks import Pace
from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies
from mirage.control.leader_election import SOLE
from mirage.control.loop import ControlLoop
from mirage.control.prediction_requests import PredictionQueue
from mirage.control.restored import RestoredDatabase
from mirage.control.self_driven import CallJobs, SelfDriven
from mirage.features.summary import QueueWindows
from mirage.metrics.gauges import GaugeSources
from mirage.store.jobs import StoredJobs
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.wrappers import AuditedAction
    from mirage.bootstrap.cluster import ClusterConnection
    from mirage.config.model import Config
    from mirage.control.leader_election import Tenure
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import Snapshot
    from mirage.store.opening import Store


from mirage.bootstrap.service import DaemonService

_PREPARING = 30.0
"""Seconds before the first cycle in which predictors that chains name are built."""


def build(config: Config, alive: Callable[[], None], tenure: Tenure) -> DaemonService:
    """The service that ``config`` describes. ``alive`` is called whenever the loop has got on within a cycle.

    Raises ``ConfigError``, ``MissingExtra``, ``UnsupportedSlurm`` and ``StoreUnavailable``.
    """
    return assemble(config, build_world(config), alive, tenure)


def assemble(
    config: Config, world: ClusterConnection, alive: Callable[[], None], tenure: Tenure = SOLE
) -> DaemonService:
    """The service that ``config`` describes, on a cluster that is there already."""
    watching, in_shadow = Observability(), models_in_shadow(config)
    guards = build_guards(config, world.lore, watching.meters.predicted, in_shadow=in_shadow)
    watching.know(guards)
    pace, commands = Pace(build_pacing(config), np.random.default_rng()), CommandQueue()
    store = _opened_store(config, tenure)
    world = _identified(world, store, tenure)
    jobs, windows = StoredJobs(store.jobs, world.clock), QueueWindows()
    refill(windows, store.snapshots, world.clock.now())
    jobs.jobs(guards.wants.history)  # read before the first cycle, not within it
    journal = LoggedJournal(store.journal, alive, [watching.hear])
    watch = SnapshotWatch(store.waits, store.snapshots, config.store.snapshot_every)
    holders, putting_away = _holders(config, store)
    led, calls = _driven(config, _led(world, tenure, holders))
    policy = build_policy(config, world.clock.rate)
    noted = _noted(led, policy.queue_age > 0, watch, ActionAudit(store.audit, world.clock), pace, watching, alive)
    restored = _restored(store, tenure, world.user if config.acting.mode == "own" else "")
    outside = replace(_outside(noted, store, journal, commands, jobs, windows), restored=restored)
    loop = ControlLoop(outside, guards, policy)
    watching.watch(config.notifications, tuple(build_channels(config.notifications)), loop.status)
    service = DaemonService(
        config=config,
        loop=loop,
        guards=guards,
        store=store,
        clock=world.clock,
        pace=pace,
        commands=commands,
        questions=PredictionQueue(commands.nudge),
        lore=world.lore if config.store.history else replace(world.lore, history=None),
        jobs=jobs,
        windows=windows,
        watchers=(watching.seen,),
        watching=watching,
        tenure=tenure,
        calls=calls,
        restored=restored,
        holders=holders,
        in_shadow=in_shadow,
        adopter=led.adopter,
    )
    putting_away.serve(service)
    service.prepare_named(guards, _PREPARING)
    watching.stand_on(
        GaugeSources(
            lambda: loop.status,
            world.clock.now,
            lambda: store.journal.unsaved,
            tenure.impediment,
            world.files.hanging,
            lambda: service.guards.stuck,
            lambda: len(service.outdated),
        )
    )
    if config.api.enabled:
        _add_interface(service, world)
    return service


def _driven(config: Config, led: ClusterConnection) -> tuple[ClusterConnection, CallJobs | None]:
    """The same connection, and what calls the chains, where their own jobs look after them."""
    controller = controller_script(config)
    if controller is None:
        return led, None
    return replace(led, actuator=SelfDriven(led.actuator, controller)), CallJobs(
        led.actuator, led.user, controller
    )


def _opened_store(config: Config, tenure: Tenure) -> Store:
    condition = writing_condition(tenure, config.store.url)
    return open_store(config.store.url, backups=Path(config.service.state), condition=condition)


def _holders(config: Config, store: Store) -> tuple[Holders | None, PuttingAway]:
    """Which user has which name, where the daemon acts for other users."""
    putting_away = PuttingAway()
    return None if config.acting.mode == "own" else Holders(store.holders, putting_away), putting_away


def _anybody(owner: str) -> None:
    """The daemon acts as the user that it runs as."""
    del owner


def _led(world: ClusterConnection, tenure: Tenure, holders: Holders | None) -> ClusterConnection:
    """The same cluster connection, whose acts in users' names only the leader performs."""
    act_for = holders.permit if holders is not None else _anybody
    leading = Leading(world.actuator, tenure.impediment, act_for)
    adopter = leading.adopting(world.adopter) if world.adopter is not None else None
    return replace(world, actuator=leading, adopter=adopter)


def _identified(world: ClusterConnection, store: Store, tenure: Tenure) -> ClusterConnection:
    """The same cluster connection, which answers only if it is the database's cluster."""
    name, history = world.lore.name, world.lore.history
    if name is None:
        return world
    identity = ClusterIdentity(name, store.cluster.settle, tenure.disqualify)

    def checked_history(start: Seconds, end: Seconds) -> JobTable:
        identity.check()
        assert history is not None
        return history(start, end)

    lore = world.lore if history is None else replace(world.lore, history=checked_history)
    return replace(world, cluster=CheckedCluster(world.cluster, identity.check), lore=lore)


def _restored(store: Store, tenure: Tenure, user: str) -> RestoredDatabase | None:
    """The restored database, if it is a backup, for the leader; ``user``: the only user for whom it acts."""
    if tenure is not SOLE and not tenure.term:
        return None
    found = store.restoration.load()
    if found is None:
        return None
    restored = RestoredDatabase(found.since, store.restoration.clear, user)
    if not found.asks_accounting:
        restored.answered(None, None, 0.0)
    return restored


def _noted(
    world: ClusterConnection,
    links_alone: bool,
    watch: SnapshotWatch,
    deeds: ActionAudit,
    pace: Pace,
    watching: Observability,
    alive: Callable[[], None],
) -> ClusterConnection:
    """The same cluster connection, with metrics of each poll and an audit of each action.

    ``links_alone``: some polls read our links alone.
    """

    def answered(seconds: float) -> None:
        pace.answered(seconds)
        watching.meters.polled(seconds)
        alive()

    def acted(deed: AuditedAction) -> None:
        deeds.record(deed)
        watching.acted(deed)
        alive()

    def seen(previous: Snapshot | None, current: Snapshot) -> None:
        deeds.seen(current)
        watch.seen(previous, current)

    cluster = InstrumentedCluster(world.cluster, seen, answered, deeds.seen if links_alone else None)
    return replace(world, cluster=cluster, actuator=Audited(world.actuator, acted))


def _outside(
    world: ClusterConnection,
    store: Store,
    journal: LoggedJournal,
    commands: CommandQueue,
    jobs: StoredJobs,
    windows: QueueWindows,
) -> LoopDependencies:
    return LoopDependencies(
        cluster=world.cluster,
        actuator=world.actuator,
        estimator=world.estimator,
        waits=store.waits,
        clock=world.clock,
        store=LoggedChains(store.chains, journal),
        journal=journal,
        files=world.files,
        commands=commands,
        history=world.lore.jobs or jobs,
        standings=world.lore.standings,
        sharing=world.lore.sharing,
        windows=windows,
    )


def _add_interface(service: DaemonService, world: ClusterConnection) -> None:
    config, store = service.config, service.store
    feed = build_feed(store)
    service.watchers = (feed.cycled, *service.watchers)
    readiness = ReadinessCheck(
        lambda: service.loop.status, service.clock.now, service.pace, store, service.tenure.impediment
    )
    views = Views(feed, readiness, service.watching.telemetry(config.metrics.anonymous))
    service.replays = build_replays(service) if config.replays.most else None
    service.interface = build_interface(service, world, views)
