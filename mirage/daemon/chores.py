"""Periodic tasks next to the loop, in separate threads; they decide nothing about chains.

They provide the inputs of predictors, compare shadow models with the active one, and ask accounting once about the
links of a restored database.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.models import AccuracyMeasurements
from mirage.bootstrap.predictors import MODELS, weights_of
from mirage.daemon.history import AccountingImport, AccountingSinks
from mirage.daemon.training import LocalLauncher, Retraining, RetrainingSettings, SlurmLauncher
from mirage.domain.errors import ClusterUnavailable, ConfigError, MirageError, PluginNotFound
from mirage.domain.link import NO_JOB
from mirage.domain.tags import PastLinks
from mirage.predictors.members import AUTO
from mirage.predictors.model_registry import ModelRegistry, read_package
from mirage.predictors.registry import check_trainer
from mirage.provisioner.steering import waited_for_predecessors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from threading import Event

    from mirage.bootstrap.cluster import ClusterInfo
    from mirage.bootstrap.service import DaemonService
    from mirage.config.model import Config
    from mirage.control.restored import RestoredDatabase
    from mirage.daemon.training import Launcher
    from mirage.domain.job import JobId, Seconds
    from mirage.ports import ChainStore, Clock, LinkAccounting
    from mirage.replay.shadows import ShadowScore

_LOG = logging.getLogger(__name__)

LINK_QUERY_EVERY = 30.0
"""Real seconds until accounting is asked again that did not answer."""
_DAY: Seconds = 86_400
"""Of how much one query is about."""
_BEFORE: Seconds = 3_600
"""Margin before the backup that is queried as well: clocks may have been set."""
_AFTER: Seconds = 86_400
"""Slurm's clock may be ahead."""
_FURTHEST: Seconds = 90 * _DAY
"""An older backup is not compared: its chains are paused."""
_PAUSE = 2.0
"""Real seconds between two queries."""


class RestoredLinkQuery:
    """Asks day by day, and continues where it was cut short."""

    def __init__(
        self,
        accounting: LinkAccounting | None,
        database: RestoredDatabase,
        store: ChainStore,
        clock: Clock,
        answered: Callable[[], None],
        stopped: Event,
    ) -> None:
        """``answered`` is called when the loop can continue; ``stopped`` ends a pause between two queries."""
        self._accounting = accounting
        self._database = database
        self._store = store
        self._clock = clock
        self._answered = answered
        self._stopped = stopped
        self._found = PastLinks()
        self._next: Seconds | None = None
        self._asked = 0.0

    def run(self) -> str:
        """Ask what is still to be asked; says what was found, empty where nothing is new.

        Raises ``StoreUnavailable`` and ``ConfigError``.
        """
        if not self._database.open or self._database.answer is not None:
            return ""
        accounting = self._accounting
        if accounting is None or self._clock.now() - self._database.since > _FURTHEST:
            return self._answer(None, None)
        try:
            keeps = accounting.keeps_comments()
            if keeps is False:
                return self._answer(None, keeps)
            for start, end in self._windows():
                if self._next is not None and self._stopped.wait(_PAUSE):
                    return ""
                self._asked = time.monotonic()
                found = accounting.past_links(start, end, self._known())
                if found is None:
                    return self._answer(None, keeps)
                self._found, self._next = self._found.joined(found), end
        except ClusterUnavailable as error:
            if self._database.not_answered(f"accounting does not answer: {error}"):
                _LOG.warning('event=restored_chains_wait reason="accounting does not answer: %s"', error)
            return ""
        return self._answer(self._found, keeps)

    def _answer(self, found: PastLinks | None, keeps: bool | None) -> str:
        self._database.answered(found, keeps, self._asked)
        self._answered()
        self._found, self._next = PastLinks(), None  # it may have to be asked again
        if found is None:
            return "accounting does not show which links were submitted since the backup"
        return f"accounting has {len(found.jobs)} jobs of links since the backup"

    def _windows(self) -> Iterator[tuple[Seconds, Seconds]]:
        """The interval that is still to be queried: from shortly before the backup until after now."""
        now = self._clock.now()
        first = min(self._database.since, now) - _BEFORE if self._next is None else self._next
        until = now + _AFTER
        for start in range(first, until, _DAY):
            yield start, min(start + _DAY, until)

    def _known(self) -> frozenset[JobId]:
        links = (link for record in self._store.load() for link in record.links)
        return frozenset(link.job_id for link in links if link.job_id != NO_JOB)


TRIAL_FEWEST = 20
"""Handovers without which nothing is decided."""
TRIAL_CLEAR = 2.0
"""Standard errors by which a gain, or a loss, must exceed nothing."""


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """Looks at each model that is watched."""

    shelf: ModelRegistry
    comparison: Callable[[], Iterable[ShadowScore]]
    """Every predictor by partition; a model is named by its directory."""
    changed: Callable[[], None]
    """Called when another model is in use, or in shadow."""
    promote: bool = True

    def run(self) -> str:
        """Decide where it is clear; says what was decided. Raises ``MirageError``."""
        watched = self.shelf.watched()
        if not watched:
            return ""
        measured, said = list(self.comparison()), []
        for name, folder in watched.items():
            of = [
                each
                for each in measured
                if each.predictor == f"{name}:{folder}" and each.handovers >= TRIAL_FEWEST
            ]
            better = [each for each in of if each.gain > TRIAL_CLEAR * each.gain_error]
            worse = [each for each in of if each.gain < -TRIAL_CLEAR * each.gain_error]
            if worse:
                self.shelf.drop(name)
                said.append(f"{name}:{folder.name} costs {_gain(worse[0])}: no longer in shadow")
            elif better and self.promote:
                self.shelf.put_in_use(read_package(folder))
                said.append(f"{name}:{folder.name} costs {_gain(better[0])}: active from now on")
        if said:
            self.changed()
        return "; ".join(said)


def _gain(measured: ShadowScore) -> str:
    where = f" in partition {measured.partition}" if measured.partition else ""
    than = "less" if measured.gain > 0 else "more"
    told = f"{abs(measured.gain):.2f} h (+-{measured.gain_error:.2f}) {than} a handover"
    return f"{told} than the active predictor{where}, {measured.handovers} handovers"


@dataclass(frozen=True, slots=True)
class Chore:
    """A task that runs periodically while the daemon runs."""

    name: str
    every: float
    """Real seconds from one beginning to the next."""
    first: float
    """Real seconds until the first."""
    work: Callable[[], str]
    """Says what it did; empty: nothing worth a word."""


class Housekeeping:
    """Runs chores until closed; a failure is logged and the chore runs again at its next time."""

    def __init__(self, chores: tuple[Chore, ...]) -> None:
        from apscheduler.schedulers.background import BackgroundScheduler

        self._scheduler = BackgroundScheduler(timezone=UTC, job_defaults={"coalesce": True, "max_instances": 1})
        for chore in chores:
            self._scheduler.add_job(
                _do,
                "interval",
                (chore,),
                seconds=chore.every,
                next_run_time=datetime.now(UTC) + timedelta(seconds=chore.first),
                misfire_grace_time=None,
            )
        self._scheduler.start()

    def close(self) -> None:
        """Start no further chore; do not wait for a running one."""
        self._scheduler.shutdown(wait=False)


def _do(chore: Chore) -> None:
    try:
        said = chore.work()
    except MirageError as error:
        _LOG.warning("event=chore_failed chore=%s error=%r", chore.name, str(error))
    except Exception:
        _LOG.exception("event=internal_error chore=%s text=%r", chore.name, "bug in Mirage; report the traceback")
    else:
        if said:
            _LOG.info("event=chore_done chore=%s text=%r", chore.name, said)


_TRY_EVERY = 600.0
"""Whether it is due each knows itself; one that failed is retried soon."""
_SHORTEST = 30.0
_IMPORTED = "jobs-imported.json"
_OUT_OF_THE_BOX = ("random-forest", "xgboost")
"""Trained in a minute each; with the look-ahead they are three, and vote."""


def learning_chores(service: DaemonService, stopped: Event) -> Iterator[Chore]:
    """Periodic tasks of a service; each ends soon when ``stopped`` is set."""
    often = max(_SHORTEST, min(_TRY_EVERY, 3_600 / service.clock.rate))
    lore = service.lore
    if service.restored is not None:
        yield Chore("restored", LINK_QUERY_EVERY, 0.0, restored_query(service, stopped).run)
    if lore.refresh is not None:
        yield Chore("standings", often, 0.0, lore.refresh)
    if lore.history is not None:
        marker, span = Path(service.config.service.state) / _IMPORTED, service.config.store.history
        if service.restored is not None:  # what was imported since the backup is not in the database
            with suppress(OSError):
                marker.unlink()

        def kept_back() -> set[int]:
            return {int(job) for record in service.loop.status.chains for job in waited_for_predecessors(record)}

        kept = AccountingSinks(service.store.waits, service.store.jobs, service.jobs.refresh, kept_back)
        found = AccountingImport(lore.history, kept, service.clock, marker, span, stopped)
        yield Chore("history", often, 0.0, found.run)
    yield from _training_chores(service, often, stopped)


def restored_query(service: DaemonService, stopped: Event) -> RestoredLinkQuery:
    """The query of accounting for the chains of a restored database."""
    assert service.restored is not None, "nothing was restored"
    store, answered = service.store.chains, service.commands.wake
    return RestoredLinkQuery(service.lore.links, service.restored, store, service.clock, answered, stopped)


def check_training(config: Config, lore: ClusterInfo) -> None:
    """Raise ``ConfigError`` where a model is to be trained by name and cannot be."""
    if config.training.every and config.training.predictor != AUTO:
        try:
            check_trainer(config.training.predictor)
        except PluginNotFound as error:
            raise ConfigError("training.predictor", str(error)) from None
        _description(config, lore)


def _training_chores(service: DaemonService, often: float, stopped: Event) -> Iterator[Chore]:
    """The training, and the watch over its results. Raises as ``check_training``, and ``MissingExtra``."""
    config, state = service.config, Path(service.config.service.state)
    shelf, promote = ModelRegistry(state / MODELS), config.training.promote
    measured = AccuracyMeasurements(service.store, service.clock, lambda: weights_of(service.config))
    yield Chore(
        "models", often, often, ModelTrial(shelf, measured.comparison, service.models_changed, promote).run
    )
    if not config.training.every or not (predictors := _trained(config, service.lore)):
        return
    curriculum = RetrainingSettings(
        config.training.every,
        predictors,
        config.training.nodes,
        config.training.limit,
        config.training.span,
        weights_of(config),
        config.training.partition,
        promote,
    )
    launcher: Launcher = SlurmLauncher() if config.training.launcher == "slurm" else LocalLauncher()
    retraining = Retraining(
        curriculum,
        service.store.jobs.read,
        _description(config, service.lore),
        launcher,
        service.clock,
        state / "training",
        shelf,
        service.models_changed,
        stopped,
    )
    yield Chore("training", often, often, retraining.run)


def _trained(config: Config, lore: ClusterInfo) -> tuple[str, ...]:
    """Which are trained; by default those that are installed, where the cluster can be simulated."""
    if config.training.predictor != AUTO:
        return (config.training.predictor,)
    try:
        _description(config, lore)
    except ConfigError:
        return ()
    return tuple(name for name in _OUT_OF_THE_BOX if _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        check_trainer(name)
    except PluginNotFound:
        return False
    return True


def _description(config: Config, lore: ClusterInfo) -> Callable[[Path], str]:
    named = config.predictors.lookahead.cluster
    if named:
        return lambda _: named
    if lore.copied is None:
        problem = "the backend cannot describe the cluster; set a file that describes it"
        raise ConfigError("predictors.lookahead.cluster", problem)
    return lore.copied
