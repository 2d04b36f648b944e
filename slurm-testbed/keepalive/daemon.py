"""The daemon and its users' agents, as processes of the testbed's users, and what they use of the machine."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.client import Client, ClientError

from onehost.people import OPERATOR, person

if TYPE_CHECKING:
    import subprocess

    from keepalive.program import Program
    from keepalive.surroundings import Surroundings

OWNERS = ("alice", "bob")
_PATIENCE = 120.0
"""Real seconds for a start or an end."""


@dataclass(frozen=True, slots=True)
class Use:
    """Resources of the daemon at one time."""

    at: float
    """Slurm's time."""
    resident_kb: int
    descriptors: int


@dataclass(slots=True)
class Mirage:
    """One daemon run as a plain account that acts through its users' agents."""

    around: Surroundings
    program: Program
    folder: Path
    predictor: str = "quantile"
    settle: str = "60s"
    """Real seconds after which a submitted link that is not visible is submitted again, as after a kill."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    use: list[Use] = field(default_factory=list)

    @property
    def socket(self) -> str:
        """Where the daemon listens."""
        return str(self.folder / "api.sock")

    def start(self) -> None:
        """Start the daemon and the agents; returns once the daemon answers."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        os.chown(self.folder, person(OPERATOR).uid, person(OPERATOR).gid)
        (self.folder / "mirage.toml").write_text(self._configuration())
        self.start_daemon()
        for owner in OWNERS:
            argv = [*self.program.argv, "agent", "--socket", self.socket]
            self.processes.append(self._start(owner, argv, f"agent-{owner}.log"))

    def start_daemon(self) -> None:
        """Start the daemon alone, for example after a kill."""
        argv = [*self.program.argv, "daemon", "--config", str(self.folder / "mirage.toml")]
        self.processes.insert(0, self._start(OPERATOR, argv, "daemon.log"))
        end = time.monotonic() + _PATIENCE
        while not self._answers():
            if time.monotonic() > end or self.processes[0].poll() is not None:
                raise RuntimeError(f"the daemon does not answer; see {self.folder / 'daemon.log'}")
            time.sleep(0.2)

    def kill_daemon(self) -> None:
        """Kill the daemon without warning, like a power failure."""
        self.processes.pop(0).kill()

    def stop(self) -> None:
        """End agents and daemon."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(_PATIENCE)

    def ask(self, user: str, *argv: str) -> str:
        """Output of a command of the user. Raises ``subprocess.SubprocessError``."""
        more = self.program.environment | {"MIRAGE_SOCKET": self.socket}
        return self.around.run(user, [*self.program.argv, *argv], more=more)

    def measure(self, now: float) -> None:
        """Record the daemon's resources."""
        process = Path("/proc", str(self.processes[0].pid))
        lines = (process / "status").read_text().splitlines()
        resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        self.use.append(Use(now, resident, len(list((process / "fd").iterdir()))))

    def _start(self, user: str, argv: list[str], log: str) -> subprocess.Popen[bytes]:
        return self.around.start(user, argv, self.folder / log, self.program.environment)

    def _answers(self) -> bool:
        try:
            Client(self.socket).version()
        except ClientError:
            return False
        return True

    def _configuration(self) -> str:
        folder, around = self.folder, self.around
        return (
            f'[service]\nstate = "{folder}/state"\nruntime = "{folder}"\n'
            f'[cluster]\nbackend = "cli"\nslurm_conf = "{around.conf}"\nclock = "{around.clock}"\n'
            '[acting]\nmode = "agent"\n'
            f'[loop]\ninterval = "60s"\npredictor = "{self.predictor}"\nsettle = "{self.settle}"\n'
            "[limits]\nsubmissions_per_hour = 600\nsubmissions_per_hour_per_user = 600\n"
            f'[api]\nsocket = "{self.socket}"\n'
        )
