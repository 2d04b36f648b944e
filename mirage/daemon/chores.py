"""Periodic tasks next to the loop that provide the inputs of predictors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.measurements import Measurements
from mirage.bootstrap.predictors import MODELS, weights_of
from mirage.daemon.history import AccountingImport, Kept
from mirage.daemon.housekeeping import Chore
from mirage.daemon.launching import LocalLauncher, SlurmLauncher
from mirage.daemon.modeltrial import ModelTrial
from mirage.daemon.restored import EVERY, RestoredLinkQuery
from mirage.daemon.training import Curriculum, Retraining
from mirage.domain.errors import ConfigError, PluginNotFound
from mirage.predictors.artifacts.shelf import Shelf
from mirage.predictors.members import AUTO
from mirage.predictors.registry import check_trainer
from mirage.provisioner.steering import waited_for_predecessors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from mirage.bootstrap.service import Service
    from mirage.bootstrap.world import Lore
    from mirage.config.model import Config
    from mirage.daemon.launching import Launcher

_TRY_EVERY = 600.0
"""Whether it is due each knows itself; one that failed is retried soon."""
_SHORTEST = 30.0
_IMPORTED = "jobs-imported.json"
_OUT_OF_THE_BOX = ("random-forest", "xgboost")
"""Trained in a minute each; with the look-ahead they are three, and vote."""


def learning_chores(service: Service, stopped: Event) -> Iterator[Chore]:
    """Periodic tasks of a service; each ends soon when ``stopped`` is set."""
    often = max(_SHORTEST, min(_TRY_EVERY, 3_600 / service.clock.rate))
    lore = service.lore
    if service.restored is not None:
        yield Chore("restored", EVERY, 0.0, restored_query(service, stopped).run)
    if lore.refresh is not None:
        yield Chore("standings", often, 0.0, lore.refresh)
    if lore.history is not None:
        marker, span = Path(service.config.service.state) / _IMPORTED, service.config.store.history
        if service.restored is not None:  # what was imported since the backup is not in the database
            with suppress(OSError):
                marker.unlink()

        def kept_back() -> set[int]:
            return {int(job) for record in service.loop.status.chains for job in waited_for_predecessors(record)}

        kept = Kept(service.store.waits, service.store.jobs, service.jobs.refresh, kept_back)
        found = AccountingImport(lore.history, kept, service.clock, marker, span, stopped)
        yield Chore("history", often, 0.0, found.run)
    yield from _training_chores(service, often, stopped)


def restored_query(service: Service, stopped: Event) -> RestoredLinkQuery:
    """The query of accounting for the chains of a restored database."""
    assert service.restored is not None, "nothing was restored"
    store, answered = service.store.chains, service.commands.wake
    return RestoredLinkQuery(service.lore.links, service.restored, store, service.clock, answered, stopped)


def check_training(config: Config, lore: Lore) -> None:
    """Raise ``ConfigError`` where a model is to be trained by name and cannot be."""
    if config.training.every and config.training.predictor != AUTO:
        try:
            check_trainer(config.training.predictor)
        except PluginNotFound as error:
            raise ConfigError("training.predictor", str(error)) from None
        _description(config, lore)


def _training_chores(service: Service, often: float, stopped: Event) -> Iterator[Chore]:
    """The training, and the watch over its results. Raises as ``check_training``, and ``MissingExtra``."""
    config, state = service.config, Path(service.config.service.state)
    shelf, promote = Shelf(state / MODELS), config.training.promote
    measured = Measurements(service.store, service.clock, lambda: weights_of(service.config))
    yield Chore(
        "models", often, often, ModelTrial(shelf, measured.comparison, service.models_changed, promote).run
    )
    if not config.training.every or not (predictors := _trained(config, service.lore)):
        return
    curriculum = Curriculum(
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


def _trained(config: Config, lore: Lore) -> tuple[str, ...]:
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


def _description(config: Config, lore: Lore) -> Callable[[Path], str]:
    named = config.predictors.lookahead.cluster
    if named:
        return lambda _: named
    if lore.copied is None:
        problem = "the backend cannot describe the cluster; set a file that describes it"
        raise ConfigError("predictors.lookahead.cluster", problem)
    return lore.copied
