"""A daemon in this process: composed as the real one is, killed at any step, and started again on its database."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from chaos.line import Killed, Line, Shell, drawn

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.links_only import LinkGuard
from mirage.backends.user_side import identify
from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection
from mirage.control.clocks import JumpWatch
from mirage.daemon.supervision import Supervisor
from mirage.domain.errors import StoreUnavailable
from mirage.store.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    import numpy as np
    from chaos.slurmctld import Slurmctld

    from mirage.backends.links_only import JobIdentity
    from mirage.bootstrap.service import DaemonService
    from mirage.config.model import Config
    from mirage.domain.command import Command
    from mirage.domain.job import JobChange, JobId, JobRequest, SignalReach


class StoreMishap(StrEnum):
    """The mishap of one transaction."""

    NOT_WRITTEN = "cannot be written: the disk is full or the database locked"
    ANSWER_LOST = "is committed, the answer lost"
    DIES_BEFORE = "kills the daemon before it is committed"
    DIES_AFTER = "kills the daemon once it is committed"


@dataclass
class SkewedClock:
    """The daemon's machine shows another time than Slurm's: Slurm's and ``skew`` seconds."""

    ctld: Slurmctld
    skew: int = 0
    rate: float = 1.0

    def now(self) -> int:
        return self.ctld.now + self.skew

    def true(self) -> int:
        """The true time, which never goes back."""
        return self.ctld.now


@dataclass(frozen=True)
class ByOwner:
    """Acts for several users, each through a separate shell."""

    line: Line

    def submit(self, request: JobRequest) -> JobId:
        return self._for(request.user).submit(request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        self._for(owner).cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        self._for(owner).update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        self._for(owner).signal(job_id, owner, signal, reach=reach)

    def estimate_start(self, request: JobRequest) -> int:
        return self._for(request.user).estimate_start(request)

    def identify(self, job_id: JobId, owner: str) -> JobIdentity:
        return identify(Shell(owner, self.line), job_id)  # type: ignore[arg-type]

    def _for(self, owner: str) -> CliActuator:
        return CliActuator(Shell(owner, self.line), owner)  # type: ignore[arg-type]


@dataclass
class Daemon:
    """The service between its deaths. ``odds``: the chances of each mishap for each transaction."""

    config: Config
    line: Line
    clock: SkewedClock
    rng: np.random.Generator
    tell: Callable[[str], None]
    odds: dict[StoreMishap, float] = field(default_factory=dict)
    read_only: bool = False
    """Whether no transaction can be written at all."""
    deaths: int = 0
    mishaps: int = 0
    """Transactions that something befell."""
    service: DaemonService | None = None
    _supervisor: Supervisor | None = None

    @property
    def runs(self) -> bool:
        return self.service is not None

    def start(self) -> None:
        """Compose it again; a database that cannot be opened ends it immediately, and the test starts it again."""
        cluster = CliCluster(Shell("mirage", self.line), self.clock)  # type: ignore[arg-type]
        actuator = ByOwner(self.line)
        guard = LinkGuard(cluster, actuator, actuator.identify)
        service = assemble(self.config, ClusterConnection(guard, guard, actuator, self.clock), lambda: None)
        service.loop._turns._clock = float  # whose chains come first must not depend on this machine's speed
        self.service, self._supervisor = service, Supervisor(service, JumpWatch(self.clock.now, self.clock.true))

    def befall(self, write: Callable[[], Any]) -> Any:
        """Do a transaction, and what befalls it."""
        mishap = drawn(self.odds, self.rng) if self.runs else None
        self.mishaps += mishap is not None or self.read_only
        if self.read_only and self.runs:
            raise StoreUnavailable("the file system is mounted read-only")
        if mishap is not None:
            self.tell(f"a transaction {mishap}")
        if mishap is StoreMishap.DIES_BEFORE:
            raise Killed
        if mishap is StoreMishap.NOT_WRITTEN:
            raise StoreUnavailable("the disk is full")
        done = write()
        if mishap is StoreMishap.DIES_AFTER:
            raise Killed
        if mishap is StoreMishap.ANSWER_LOST:
            raise StoreUnavailable("the server closed the connection")
        return done

    def cycle(self) -> None:
        """One cycle, unless it dies in the middle."""
        if self._supervisor is None:
            return
        try:
            self._supervisor.cycle()
        except Killed:
            self.kill()

    def ask(self, command: Command) -> Future[str] | None:
        """The result of a user's request; ``None``: no daemon answers."""
        return self.service.commands.put(command) if self.service else None

    def stop(self) -> None:
        """An orderly end; what cannot be written is lost with it."""
        if self.service is None:
            return
        try:
            self.service.close()
        except StoreUnavailable:
            self.tell("the daemon ends and loses its last lines")
        except Killed:
            pass
        self.service = self._supervisor = None

    def kill(self) -> None:
        """Nothing of it is left but what is on disk."""
        service = self.service
        assert service is not None
        self.deaths += 1
        self.service = self._supervisor = None
        service.questions.close()
        service.guards.close()
        service.watching.close()
        service.store.database.close()


@contextmanager
def befallen(daemon: Daemon) -> Iterator[None]:
    """Each writer of a database meets the same mishaps as the daemon's transactions."""
    write = Database.write

    def faulty(database: Database, work: Callable[[Any], Any]) -> Any:
        return daemon.befall(lambda: write(database, work))

    with patch.object(Database, "write", faulty):
        yield
