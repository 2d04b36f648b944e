"""What is to be done beside the loop so that predictors have what they want."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.predictors import MODELS
from mirage.daemon.history import AccountingImport, Kept
from mirage.daemon.housekeeping import Chore
from mirage.daemon.launching import LocalLauncher, SlurmLauncher
from mirage.daemon.restored import EVERY, RestoredLinkQuery
from mirage.daemon.training import Curriculum, Retraining
from mirage.domain.errors import ConfigError, PluginNotFound
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
"""Whether it is due each knows itself; one that failed is tried again soon."""
_SHORTEST = 30.0
_IMPORTED = "jobs-imported.json"


def learning_chores(service: Service, stopped: Event) -> Iterator[Chore]:
    """Those of a service; each ends soon when ``stopped`` is set."""
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
    if service.config.training.every:
        yield Chore("training", often, often, _retraining(service, stopped).run)


def restored_query(service: Service, stopped: Event) -> RestoredLinkQuery:
    """What asks accounting for the chains of a restored database."""
    assert service.restored is not None, "nothing was restored"
    store, answered = service.store.chains, service.commands.wake
    return RestoredLinkQuery(service.lore.links, service.restored, store, service.clock, answered, stopped)


def check_training(config: Config, lore: Lore) -> None:
    """Raise ``ConfigError`` where models are to be trained and cannot be."""
    if config.training.every:
        try:
            check_trainer(config.training.predictor)
        except PluginNotFound as error:
            raise ConfigError("training.predictor", str(error)) from None
        _description(config, lore)


def _retraining(service: Service, stopped: Event) -> Retraining:
    """Raises ``ConfigError`` where the cluster is not described, ``MissingExtra``."""
    config, state = service.config.training, Path(service.config.service.state)
    curriculum = Curriculum(
        config.every, config.predictor, config.nodes, config.limit, config.span, config.partition
    )
    launcher: Launcher = SlurmLauncher() if config.launcher == "slurm" else LocalLauncher()
    cluster = _description(service.config, service.lore)
    folder, models = state / "training", state / MODELS
    jobs = service.store.jobs.read
    return Retraining(curriculum, jobs, cluster, launcher, service.clock, folder, models, stopped)


def _description(config: Config, lore: Lore) -> Callable[[Path], str]:
    named = config.predictors.lookahead.cluster
    if named:
        return lambda _: named
    if lore.copied is None:
        problem = "the back end does not tell how the cluster is set up: name a file that does"
        raise ConfigError("predictors.lookahead.cluster", problem)
    return lore.copied
