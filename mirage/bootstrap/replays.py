"""Replays that people ask for over the API: the command, and where its things are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.predictors import MODELS, check_chosen, shelved
from mirage.domain.errors import ConfigError
from mirage.ownprocess import own_python
from mirage.predictors.members import COMBINED, members_of
from mirage.replay.runs import ReplayRuns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.bootstrap.service import Service
    from mirage.replay.runs import Wish


def build_replays(service: Service) -> ReplayRuns:
    """Replays of a daemon, kept in its state directory."""
    config = service.config
    offered = Path(config.replays.folder) if config.replays.folder else None

    def command(wish: Wish, folder: Path) -> Sequence[str]:
        return replay_command(wish, wish.cluster or _own_cluster(service, folder), _models(service))

    folder = Path(config.service.state) / "replays"
    return ReplayRuns(folder, offered, command, service.clock.now, config.replays.most, config.replays.memory_mb)


def replay_command(wish: Wish, cluster: str, models: Path) -> list[str]:
    """Return the ``mirage replay`` command of a request; no value in it can be taken for an option."""
    options = {
        "--cluster": cluster,
        "--predictor": ",".join(_located(name, models) for name in wish.predictors),
        "--nodes": str(wish.nodes),
        "--limit": f"{wish.limit}s",
        "--start": wish.start,
        "--end": wish.end,
        "--every": f"{wish.every}s",
        "--tick": f"{wish.tick}s",
        "--links": str(wish.links),
        "--partition": wish.partition,
        "--workers": "1",
    }
    words = [f"{name}={value}" for name, value in options.items() if value]
    return own_python("-m", "mirage", "replay", wish.trace, *words)


def _located(text: str, models: Path) -> str:
    """The predictor with the directories of its models. Raises ``PluginNotFound`` and ``ConfigError``."""
    check_chosen(text, models)
    name, _, members = text.partition(":")
    if name not in COMBINED:
        return shelved(text, models)
    return f"{name}:{'+'.join(shelved(member, models) for member in members_of(name, members))}"


def _own_cluster(service: Service, folder: Path) -> str:
    named = service.config.predictors.lookahead.cluster
    if named:
        return named
    if service.lore.copied is None:
        raise ConfigError("cluster", "the backend cannot describe the cluster; choose a preset or a file")
    return service.lore.copied(folder)


def _models(service: Service) -> Path:
    return Path(service.config.service.state) / MODELS
