"""Machines to install on: containers with systemd as their first process."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from containers import docker, succeeds

if TYPE_CHECKING:
    from collections.abc import Iterator

IMAGE = Path(__file__).with_name("systemd")
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Machine:
    """A running one; commands run as root by default."""

    name: str

    def tries(self, command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        argv = ["docker", "exec", "-u", user, self.name, "bash", "-c", command]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def run(self, command: str, user: str = "root") -> str:
        done = self.tries(command, user)
        assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def put(self, file: Path, place: str) -> None:
        docker("cp", str(file), f"{self.name}:{place}")

    def wait_until(self, command: str) -> None:
        """Until ``command`` succeeds."""
        end = time.monotonic() + PATIENCE_S
        while (last := self.tries(command)).returncode:
            journal = self.tries("journalctl -u mirage --no-pager | tail -40").stdout
            assert time.monotonic() < end, f"{command}: {last.stdout}{last.stderr}\n{journal}"
            time.sleep(0.5)


@contextmanager
def started(packages: str) -> Iterator[Machine]:
    """With ``packages`` installed. Skips where there is no engine, or none that lets systemd run."""
    base = os.environ.get("MIRAGE_BASE_IMAGE", "")
    if not base or not succeeds("docker", "image", "inspect", base):
        pytest.skip("no machine to install on: MIRAGE_BASE_IMAGE names no image that a container engine here has")
    image = docker("build", "-q", "--build-arg", f"BASE={base}", "--build-arg", f"PACKAGES={packages}", str(IMAGE))
    mounts = [word for place in ("/run", "/run/lock") for word in ("--tmpfs", place)]
    rights = ["--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"]
    groups = "/sys/fs/cgroup/systemd"
    if Path(groups).exists():  # the first version's; with the second the engine gives each container one
        mounts += ["-v", f"{groups}:{groups}:rw"]
    machine = Machine(f"mirage-machine-{os.getpid()}")
    docker("run", "-d", "--name", machine.name, *rights, *mounts, image.strip().splitlines()[-1])
    try:
        _await_system(machine)
        yield machine
    finally:
        docker("rm", "-f", "-v", machine.name)


def _await_system(machine: Machine) -> None:
    end = time.monotonic() + PATIENCE_S
    while (state := machine.tries("systemctl is-system-running").stdout.strip()) not in ("running", "degraded"):
        if time.monotonic() > end:
            pytest.skip(f"no machine to install on: systemd does not come up in a container here ({state})")
        time.sleep(0.5)
