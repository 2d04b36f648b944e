"""Leader election among daemons on one database: the parts put together."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from mirage.atomic_file import write_atomically
from mirage.config.places import CONTROLLER, is_absent
from mirage.control.leader_election import SOLE, LeaderCandidate, LeaderElection, LeaseTerms
from mirage.domain.errors import ConfigError
from mirage.store.leases import FileFence, FileLeases, SqlLeases, fence, no_entry, open_leases
from mirage.store.location import locate
from mirage.store.opening import open_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.model import Config
    from mirage.control.leader_election import Tenure
    from mirage.store.database import Condition

_IDENTITY = "identity"


@contextmanager
def open_campaign(config: Config) -> Iterator[LeaderElection]:
    """The election on the configured store, for as long as the state directory is ours alone.

    Raises as ``open_store``.
    """
    state = Path(config.service.state)
    shared = locate(config.store.url).directory
    database = open_database(config.store.url, backups=state) if shared is None else None
    try:
        leases = SqlLeases(database) if database is not None else open_leases(config.store.url)
        identity = _identity(state) if shared is None else _process_identity()
        candidate = LeaderCandidate(
            identity, config.service.name or socket.gethostname(), LeaseTerms(config.store.lease)
        )
        yield LeaderElection(leases, candidate, _clock)
    finally:
        if database is not None:
            database.close()


def writing_condition(tenure: Tenure, url: str) -> Condition | None:
    """On what condition chains and journal are written."""
    if tenure is SOLE:
        return None
    if (shared := locate(url).directory) is not None:
        return FileFence(FileLeases(shared), tenure.holder, tenure.term)
    return fence(tenure.holder, tenure.term) if tenure.term else no_entry


def controller_script(config: Config) -> Path | None:
    """The script that links run, in the shared directory; ``None``: a daemon looks after the chains."""
    shared = locate(config.store.url).directory if config.store.url else None
    if shared is None or config.acting.mode != "own" or is_absent(shared / CONTROLLER):
        return None
    return shared / CONTROLLER


def _clock() -> float:
    """Continues while the machine sleeps, as a monotonic clock of Linux's does not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _process_identity() -> str:
    """Of this process alone: several may use a shared directory, on any machine."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4()}"


def _identity(state: Path) -> str:
    """Return the state directory's ID, unique by the directory's lock. Raises ``ConfigError``."""
    file = state / _IDENTITY
    try:
        if not file.exists():
            write_atomically(file, f"{uuid4()}\n".encode())
        return f"{socket.gethostname()}:{file.read_text(encoding='ascii').strip()}"
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("service.state", f"{file} cannot be created or read: {error}") from error
