"""Whether a daemon can start with a configuration: its parts are built, and nothing is left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mirage.api.access.sessions import check_session_key
from mirage.api.server import check_socket
from mirage.bootstrap.backends import build_world
from mirage.bootstrap.interface import SESSION_KEY, check_access
from mirage.bootstrap.observability import build_channels
from mirage.bootstrap.policies import build_guards, build_pacing, build_policy
from mirage.bootstrap.simulated import CLOCK
from mirage.daemon.chores import check_training
from mirage.daemon.state_directory import HEARTBEAT, check_database, check_folder, check_private_folder
from mirage.domain.errors import ConfigError
from mirage.store.location import check_room, locate
from mirage.store.schema import inspect_store

if TYPE_CHECKING:
    from mirage.bootstrap.cluster import ClusterConnection
    from mirage.config.model import Config


def check_start(config: Config) -> None:
    """Raise what would keep a daemon of this configuration from starting, as this user and on this machine.

    Slurm is not queried. That another daemon runs is no problem.
    """
    state = Path(config.service.state)
    check_private_folder(state, "service.state")
    _check_own_files(state)
    check_folder(Path(config.service.runtime), "service.runtime")
    _check_store(config, state)
    world = _built_world(config)
    build_guards(config).close()
    build_policy(config, world.clock.rate)
    build_pacing(config)
    if config.api.enabled:
        check_access(config.api)
        check_session_key(state / SESSION_KEY)
        check_socket(Path(config.api.socket), Path(config.service.runtime))
    tuple(build_channels(config.notifications))
    check_training(config, world.lore)


def _check_own_files(state: Path) -> None:
    for file in (state / "daemon.lock", state / "identity"):
        if file.exists() and not (file.is_file() and os.access(file, os.R_OK | os.W_OK)):
            raise ConfigError("service.state", f"{file} is not readable and writable for this user")


def _check_store(config: Config, state: Path) -> None:
    check_database(config.store.url, state / HEARTBEAT)
    check_room(config.store.url)
    location = locate(config.store.url)
    if not (location.is_missing() or (location.file and not location.file.stat().st_size)):
        inspect_store(config.store.url).check("store.url")


def _built_world(config: Config) -> ClusterConnection:
    """The cluster's parts; what they keep in the state directory, such as a simulated clock, is thrown away."""
    with TemporaryDirectory(prefix="mirage-check-") as scratch:
        if (clock := Path(config.service.state, CLOCK)).exists():
            shutil.copyfile(clock, Path(scratch, CLOCK))
        service = config.service.model_copy(update={"state": scratch})
        return build_world(config.model_copy(update={"service": service}))
