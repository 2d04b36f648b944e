"""A compose file brought up by whatever container engine answers here, for tests; without one they skip.

``MIRAGE_BASE_IMAGE`` has to name an image that the engine has, such as debian:12-slim. Where none can be fetched
one is made in two minutes:

    debootstrap --variant=minbase --include=ca-certificates bookworm DIR && tar -C DIR -c . | docker import - NAME
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 300.0


@dataclass(frozen=True)
class Containers:
    """One ``up`` of the compose file, under a separate project name."""

    compose: tuple[str, ...]
    file: Path
    project: str

    def run(self, *arguments: str) -> str:
        argv = [*self.compose, "-p", self.project, "-f", str(self.file), *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout

    def login(self, user: str, service: str, command: str) -> str:
        """The output of a command in a user's login shell, in the user's home."""
        return self.run("exec", "-T", "-u", user, service, "bash", "-lc", f"cd; {command}")

    def health(self, service: str) -> str:
        identifier = self.run("ps", "-q", service).strip()
        return docker("inspect", "-f", "{{.State.Health.Status}}", identifier).strip() if identifier else ""

    def left(self) -> str:
        """Everything that the engine still has of the project."""
        mine = ("--filter", f"label=com.docker.compose.project={self.project}", "-q")
        return "".join(docker(*what, *mine) for what in (("ps", "-a"), ("volume", "ls"), ("network", "ls")))


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def succeeds(*argv: str) -> bool:
    if shutil.which(argv[0]) is None:
        return False
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def compose_command() -> tuple[str, ...]:
    """Skips where nothing can be built."""
    if not os.environ.get("MIRAGE_BASE_IMAGE"):
        pytest.skip("no containers: MIRAGE_BASE_IMAGE does not name a base image, such as debian:12-slim")
    if not succeeds("docker", "info"):
        pytest.skip("no containers: no container engine answers docker info")
    if not succeeds("docker", "image", "inspect", os.environ["MIRAGE_BASE_IMAGE"]):
        pytest.skip(f"no containers: the engine has no image {os.environ['MIRAGE_BASE_IMAGE']}")
    for words in (("docker", "compose"), ("docker-compose",)):
        if succeeds(*words, "version"):
            return words
    pytest.skip("no containers: neither docker compose nor docker-compose is installed")


def wait_until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(1)


def copied(sources: Iterable[str], to: Path) -> None:
    """Exactly these files and directories of the project, so that nothing else in a checkout can matter."""
    for source in sources:
        target = to / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
