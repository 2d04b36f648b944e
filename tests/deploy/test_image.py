"""The daemon's image: what it is made of and, where an engine answers, alive on a read-only root without root."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from containers import ROOT, copied, docker, succeeds, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = ROOT / "deploy" / "container"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
QUADLET = FOLDER / "mirage.container"
BOUNDS = ("--init", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")


def sources() -> list[str]:
    """The files that the image takes from the project."""
    found = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    return [source for line in found for source in line.split()]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] not in "#*"]
    for source in sources():
        assert (ROOT / source).exists(), source
        assert not any(source.split("/")[0] == pattern for pattern in ignored), source


def test_it_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users[-1] == "8421:8421"


def test_the_configuration_is_accepted() -> None:
    from mirage.config.loading import load_config

    assert load_config(FOLDER / "mirage.toml").config.cluster.backend == "simulated"


def test_quadlet_runs_it_as_the_image_is_meant() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(QUADLET)
    container = unit["Container"]
    assert container["User"] in DOCKERFILE
    assert container["HealthCmd"] in DOCKERFILE
    assert (container["ReadOnly"], container["NoNewPrivileges"], container["DropCapability"]) == (
        "true",
        "true",
        "all",
    )


@pytest.fixture
def container(tmp_path: Path) -> Iterator[str]:
    """Its name; it is built and started."""
    base = os.environ.get("MIRAGE_BASE_IMAGE", "")
    if not base or not succeeds("docker", "image", "inspect", base):
        pytest.skip("no containers: MIRAGE_BASE_IMAGE names no image that a container engine here has")
    copied((*sources(), "deploy/container/Dockerfile"), tmp_path)
    file, name = tmp_path / "deploy" / "container" / "Dockerfile", f"mirage-image-{os.getpid()}"
    argv = ["docker", "build", "-q", "-f", str(file), "--build-arg", f"BASE={base}", "-t", name, str(tmp_path)]
    built = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    mounts = ("-v", f"{name}:/var/lib/mirage", "-v", f"{name}-run:/run/mirage")
    try:
        docker("run", "-d", "--name", name, *BOUNDS, *mounts, name)
        yield name
    finally:
        docker("rm", "-f", name)
        docker("volume", "rm", name, f"{name}-run")
        docker("rmi", name)


def test_it_is_healthy_answers_and_keeps_its_store(container: str) -> None:
    def health() -> str:
        return docker("inspect", "-f", "{{.State.Health.Status}}", container).strip()

    wait_until(lambda: health() == "healthy", lambda: docker("logs", container))
    assert docker("exec", container, "id", "-u").strip() == "8421"
    assert json.loads(docker("exec", container, "mirage", "chains", "--json"))["chains"] == []
    assert not succeeds("docker", "exec", container, "touch", "/opt/mirage/here")
    docker("stop", "-t", "60", container)
    assert docker("inspect", "-f", "{{.State.ExitCode}}", container).strip() == "0"
    docker("start", container)
    wait_until(
        lambda: succeeds("docker", "exec", container, "/opt/mirage/bin/healthcheck"),
        lambda: docker("logs", container),
    )
    status = json.loads(
        docker("exec", container, "mirage", "db", "status", "--json", "--config", "/etc/mirage/mirage.toml")
    )
    assert status["state"] == "current"
