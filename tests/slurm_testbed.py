"""A real Slurm for tests: ``Testbed``, over the program ``slurm-testbed/testbed``.

In ``tests/live`` the fixtures are (see ``tests/live/conftest.py``):

- ``testbed``: clock x60, shared by the session, reset before each test: no jobs, every service and node up;
- ``privileged_testbed``: the same, and skips where there is only one user and no accounting (no root);
- ``real_clock_testbed``: clock x1, started when first asked for.

What a test uses::

    testbed.run("alice", ["sbatch", "--parsable", ...])    as that user, in the user's home, on Slurm's clock
    testbed.run("alice", [...], plain=True)                the same on the real clock, as the daemon runs
    testbed.plain_environment("alice")                     SLURM_CONF, the clock, HOME, PATH...: not preloaded
    testbed.environment("alice")                           the same with the fast clock preloaded
    testbed.now()                                          Slurm's time, epoch seconds
    testbed.wait_until(lambda: ..., timeout_real_s, what)
    testbed.cancel_all() / testbed.reset()
    testbed.service("slurmctld", "kill")                   start|stop|kill|pause|continue; slurmdbd, slurmrestd,
                                                           slurmd@a100-001, slurmrestd@alice (Unix socket)
    testbed.node("a100-001", "down")                       down|resume
    testbed.token("bob"), testbed.rest, testbed.rest_socket("alice")
    testbed.directory, .conf, .users, .operator, .rate, .clock, .nodes, .slurm_version, .privileged

A test that needs a separate testbed (another clock, other settings)::

    with Testbed.start(state_directory("mine"), speed=240, ...).stopped_after() as testbed:
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PROGRAM = Path(__file__).resolve().parents[1] / "slurm-testbed" / "testbed"
PORTS_OF_ONE = 200
"""Controller, database, REST, and a port for each node."""
_MONTH_S = 30 * 86_400
SMALL = "cpu=2,v100=2,a100=2,npu=2"


class NoTestbed(Exception):
    """No testbed can be started on this machine; the message says what is missing."""


class TestbedFailed(Exception):
    """The testbed program, or a wait for the testbed, failed."""


TestbedFailed.__test__ = False  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Testbed:
    """A running testbed. Times are Slurm's; timeouts are real seconds."""

    __test__ = False

    directory: Path
    conf: Path
    users: tuple[str, ...]
    operator: str | None
    """The user whom Slurm's accounting knows as Operator; ``None`` without accounting."""
    nodes: tuple[str, ...]
    rate: int
    clock: Path | None
    """``clock.json``, ``None`` on the real clock."""
    rest: str
    """slurmrestd's address; callers bring a token. Empty where Slurm 26.05 or newer runs without root."""
    slurm_version: str
    privileged: bool
    fast: Mapping[str, str]
    plain: Mapping[str, str]
    _tokens: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def start(
        cls,
        directory: Path,
        *,
        speed: int = 60,
        nodes: str = SMALL,
        priority_flags: str = "",
        conf_lines: Sequence[str] = (),
    ) -> Testbed:
        """Start one on free ports. Raises ``NoTestbed`` where Slurm is not installed."""
        argv = ["start", "--dir", str(directory), "--speed", str(speed), "--nodes", nodes]
        argv += ["--base-port", str(free_ports()), "--priority-flags", priority_flags]
        for line in conf_lines:
            argv += ["--conf-line", line]
        done = subprocess.run([sys.executable, PROGRAM, *argv], capture_output=True, text=True, check=False)
        if "not installed:" in done.stderr:
            raise NoTestbed(done.stderr.strip())
        if done.returncode:
            raise TestbedFailed(f"{done.stderr}{newest_log_lines(directory)}")
        return cls.attach(directory)

    @classmethod
    def attach(cls, directory: Path) -> Testbed:
        """One that runs already."""
        state: dict[str, Any] = json.loads((directory / "testbed.json").read_text())
        return cls(
            directory=directory,
            conf=Path(state["conf"]),
            users=tuple(state["users"]),
            operator=state["operator"],
            nodes=tuple(state["nodes"]),
            rate=state["rate"],
            clock=Path(state["clock"]) if state["clock"] else None,
            rest=state["rest"],
            slurm_version=state["slurm_version"],
            privileged=state["settings"]["privileged"],
            fast=state["environment"],
            plain=state["plain_environment"],
        )

    def stop(self, *, wipe: bool = True) -> None:
        """End it, and with ``wipe`` delete all it has left."""
        self.testbed("wipe" if wipe else "stop")

    @contextlib.contextmanager
    def stopped_after(self) -> Iterator[Testbed]:
        """Stops at the end of the block, and also where this process is killed before."""
        argv = [sys.executable, str(PROGRAM), "stop", "--wipe", "--when-gone", str(os.getpid())]
        argv += ["--dir", str(self.directory)]
        watcher = subprocess.Popen(
            argv, start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield self
        finally:
            self.stop()
            watcher.terminate()
            watcher.wait()

    def testbed(self, command: str, *arguments: str) -> str:
        """Run one command of the testbed program. Raises ``TestbedFailed`` with its words."""
        argv = [sys.executable, str(PROGRAM), command, *arguments, "--dir", str(self.directory)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TestbedFailed(f"{command} {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def service(self, name: str, action: str) -> None:
        """``start``, ``stop``, ``kill``, ``pause`` or ``continue`` one daemon; returns when it is done."""
        self.testbed("service", name, action)

    def node(self, name: str, action: str) -> None:
        """``down``, as if the node had failed, or ``resume``."""
        self.testbed("node", name, action)

    def token(self, user: str, lifespan_s: int = _MONTH_S) -> str:
        """A JSON Web Token; it expires in Slurm's time. One for a month is made once."""
        if lifespan_s == _MONTH_S and user in self._tokens:
            return self._tokens[user]
        answer = self.ask("scontrol", "token", f"username={user}", f"lifespan={lifespan_s}")
        token = answer.strip().removeprefix("SLURM_JWT=")
        if lifespan_s == _MONTH_S:
            self._tokens[user] = token
        return token

    def rest_socket(self, user: str) -> Path:
        """The socket of the user's own slurmrestd (``service slurmrestd@USER start``)."""
        return self.directory / "rest" / user / "slurmrestd.sock"

    def plain_environment(self, user: str | None = None) -> dict[str, str]:
        """For programs that stay on the real clock, run as ``user`` (or as we are)."""
        return surroundings(user) | dict(self.plain)

    def environment(self, user: str | None = None) -> dict[str, str]:
        """For programs that live on Slurm's clock."""
        return surroundings(user) | dict(self.fast)

    def run(
        self,
        user: str,
        argv: Sequence[str],
        input: str | None = None,  # noqa: A002 - as subprocess calls it
        *,
        timeout: float = 60.0,
        env: Mapping[str, str] | None = None,
        plain: bool = False,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as ``user``, in the user's home; ``env`` is added to its environment.

        Raises ``TestbedFailed`` with its output if it fails, unless ``check`` is false.
        """
        environment = self.plain_environment(user) if plain else self.environment(user)
        done = subprocess.run(
            list(argv),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=environment | dict(env or {}),
            cwd=environment["HOME"],
            **identity(user),
        )
        if check and done.returncode:
            raise TestbedFailed(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    def now(self) -> float:
        """Slurm's time in epoch seconds."""
        real = time.time()
        if self.clock is None:
            return real
        clock = json.loads(self.clock.read_text())
        return float(clock["t0"] + (real - clock["t0"]) * clock["rate"])

    def wait_until(self, predicate: Callable[[], Any], timeout_real_s: float, what: str) -> None:
        """Poll until ``predicate`` is true. Raises ``TestbedFailed`` with queue and nodes after the timeout."""
        end = time.monotonic() + timeout_real_s
        while not predicate():
            if time.monotonic() > end:
                raise TestbedFailed(f"waited {timeout_real_s:g} real seconds for {what}\n{self.picture()}")
            time.sleep(0.1)

    def picture(self) -> str:
        """Queue and nodes, for the reader of a failure."""
        with contextlib.suppress(TestbedFailed):
            return self.testbed("status")
        return "(the testbed does not answer)"

    def queue(self) -> list[str]:
        """Ids of the jobs that have not ended; a line each, as squeue gives them."""
        return self.ask("squeue", "-h", "-a", "-o", "%i").split()

    def ask(self, *argv: str) -> str:
        """The output of one of Slurm's commands for its administrator."""
        environment = self.environment()
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    def cancel_all(self) -> None:
        """Cancel every job and wait until none is left."""
        for user in set(self.ask("squeue", "-h", "-a", "-o", "%u").split()):
            self.ask("scancel", "--user", user)
        self.wait_until(lambda: not self.queue(), 60, "the end of all jobs")

    def reset(self) -> None:
        """The state after a start: every service and node up, no jobs."""
        self.testbed("repair")


def surroundings(user: str | None) -> dict[str, str]:
    """The environment of a fresh login, with the PATH we have."""
    name = user or pwd.getpwuid(os.geteuid()).pw_name
    home = pwd.getpwnam(name).pw_dir
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin:/usr/bin:/bin"
    return {"HOME": home, "USER": name, "LOGNAME": name, "SHELL": "/bin/bash", "PATH": path, "LANG": "C.UTF-8"}


def identity(user: str) -> dict[str, Any]:
    """Arguments of ``subprocess`` that make it run as ``user``; none if that is us."""
    entry = pwd.getpwnam(user)
    if entry.pw_uid == os.geteuid():
        return {}
    groups = os.getgrouplist(user, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def state_directory(purpose: str) -> Path:
    """A short path, for Unix sockets, that no other test run uses."""
    root = Path("/run") if os.geteuid() == 0 else Path("/tmp")
    return root / f"mirage-{purpose}-{os.getpid()}"


def free_ports() -> int:
    """The first of ``PORTS_OF_ONE`` ports of which those needed are free; below those the kernel hands out."""
    first, last = 20_000, 32_000
    blocks = list(range(first, last, PORTS_OF_ONE))
    start = os.getpid() % len(blocks)
    for base in blocks[start:] + blocks[:start]:
        if all(is_free(base + offset) for offset in (*range(4), *range(100, 150))):
            return base
    raise TestbedFailed(f"no {PORTS_OF_ONE} free ports between {first} and {last}")


def is_free(port: int) -> bool:
    """Whether a TCP port can be bound on loopback."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def newest_log_lines(directory: Path) -> str:
    """The end of each daemon's output, for the reader of a failed start."""
    lines = []
    for path in sorted((directory / "log").glob("*.out")):
        lines += [f"{path.name}: {line}" for line in path.read_text(errors="replace").splitlines()[-3:]]
    return "\n".join(lines)
