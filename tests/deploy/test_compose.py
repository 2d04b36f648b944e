"""docker-compose.yml for real: the chains of the live scenario, on a real Slurm, kept in PostgreSQL."""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from containers import ROOT, Containers, compose_command, copied, succeeds, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

FILE = ROOT / "docker-compose.yml"
STAND_IN = Path(__file__).with_name("postgres")
SOURCES = ("docker-compose.yml", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "mirage", "deploy")
LINKS = 4
LIMIT_MINUTES = 15


@pytest.fixture
def keepalive(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The scenario's services and its judgement."""
    monkeypatch.syspath_prepend(str(ROOT / "slurm-testbed"))
    importlib.import_module("keepalive.services")
    importlib.import_module("keepalive.report")
    return importlib.import_module("keepalive")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def postgres_image() -> str:
    """The official one, or what stands in for it where images cannot be fetched."""
    official = re.search(r"MIRAGE_POSTGRES_IMAGE:-([\w:.]+)", FILE.read_text())
    assert official
    if succeeds("docker", "image", "inspect", official[1]):
        return official[1]
    argv = ["docker", "build", "-q", "--build-arg", f"BASE={os.environ['MIRAGE_BASE_IMAGE']}", str(STAND_IN)]
    built = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "DOCKER_BUILDKIT": "0"}
    )
    assert built.returncode == 0, built.stderr[-4000:]
    return built.stdout.strip().splitlines()[-1]


@pytest.fixture
def containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Containers]:
    compose = compose_command()
    copied((*SOURCES, "slurm-testbed"), tmp_path)
    monkeypatch.setenv("MIRAGE_POSTGRES_IMAGE", postgres_image())
    monkeypatch.setenv("MIRAGE_PORT", str(free_port()))
    monkeypatch.setenv("TESTBED_NODES", "cpu=2,v100=4,a100=4,npu=5")
    made = Containers(compose, tmp_path / "docker-compose.yml", f"mirage-compose-{os.getpid()}")
    try:
        made.run("up", "-d", "--build")
        yield made
    finally:
        made.run("down", "--volumes", "--rmi", "local")


def test_chains_live_on_the_real_slurm_and_the_page_answers(containers: Containers, keepalive: ModuleType) -> None:
    for service in ("db", "slurm", "mirage"):
        wait_until(lambda name=service: containers.health(name) == "healthy", lambda: containers.run("logs"))
    load(containers)
    ids = submitted(containers, keepalive)
    wait_until(lambda: halfway(containers, ids), lambda: containers.run("logs", "mirage"))
    containers.run("kill", "mirage")
    containers.run("start", "mirage")
    wait_until(lambda: containers.health("mirage") == "healthy", lambda: containers.run("logs", "mirage"))
    check_page(containers)
    wait_until(lambda: over(containers, ids), lambda: f"{chains(containers)}\n{containers.run('logs', 'mirage')}")
    check_chains(containers, keepalive, ids)
    check_store(containers)
    containers.run("down", "--volumes")
    assert containers.left() == ""


def load(containers: Containers) -> None:
    """Carol's jobs, so that links have to wait."""
    for partition, gres in (("v100", "gpu:v100:4"), ("a100", "gpu:a100:4"), ("npu", "npu:ascend:8")):
        job = f"sbatch -p {partition} --gres={gres} -t 10 -o /dev/null --array=1-8 --wrap 'sleep 6m'"
        containers.login("carol", "slurm", job)


def submitted(containers: Containers, keepalive: ModuleType) -> dict[str, str]:
    """Each service's chain, by its name."""
    ids = {}
    for service in keepalive.services.SERVICES:
        options = " ".join((*service.options, f"--links={service.links or LINKS}", f"--name={service.name}"))
        script = service.text(LIMIT_MINUTES).replace("'", "'\\''")
        containers.login(service.owner, "mirage", f"printf %s '{script}' >{service.name}.sh")
        said = f"mirage submit {options} --parsable {service.name}.sh"
        ids[service.name] = containers.login(service.owner, "mirage", said).strip()
    return ids


def chains(containers: Containers) -> dict[str, Any]:
    said = containers.run("exec", "-T", "-u", "root", "mirage", "mirage", "chains", "--all", "--json")
    return {chain["id"]: chain for chain in json.loads(said)["chains"]}


def halfway(containers: Containers, ids: dict[str, str]) -> bool:
    found = chains(containers)
    return sum(bool(link["start"]) for link in found[ids["train-v100"]]["links"]) >= LINKS // 2


def over(containers: Containers, ids: dict[str, str]) -> bool:
    found = chains(containers)
    ended = [link["state"] in ("ended", "lost") for chain in ids.values() for link in found[chain]["links"]]
    return all(ended) and all(found[chain]["status"] in ("done", "stopped") for chain in ids.values())


def check_chains(containers: Containers, keepalive: ModuleType, ids: dict[str, str]) -> None:
    """By the judgement of the scenario, and by Slurm's accounting."""
    found = chains(containers)
    fares = [
        keepalive.report.fare(service, found[ids[service.name]], service.links or LINKS)
        for service in keepalive.services.SERVICES
    ]
    faults = [f"{fare.name} {fault}" for fare in fares for fault in fare.faults]
    ask = "sacct -a -X -n -P -S 2020-01-01 -o JobID,Comment"
    tagged = containers.login("root", "slurm", ask)
    assert not faults + keepalive.report.doubles(tagged), keepalive.report.table(fares)
    assert tagged.count("mirage:") >= LINKS * 5
    owners = containers.login("root", "slurm", "sacct -a -X -n -P -S 2020-01-01 -o Comment,User").splitlines()
    expected = {ids[service.name]: service.owner for service in keepalive.services.SERVICES}
    for tag, _, owner in (line.partition("|") for line in owners if line.startswith("mirage:")):
        assert expected[tag.split(":")[1]] == owner


def check_page(containers: Containers) -> None:
    """On this machine's own port; who asks without a token learns nothing, with one of the user's own chains."""
    address = f"http://127.0.0.1:{os.environ['MIRAGE_PORT']}"
    with urllib.request.urlopen(f"{address}/healthz") as answer:
        assert json.load(answer)["status"] == "ok"
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(f"{address}/api/v1/chains")
    refused.value.close()
    made = json.loads(containers.login("alice", "mirage", "mirage tokens create --json"))
    asked = urllib.request.Request(
        f"{address}/api/v1/chains", headers={"Authorization": f"Bearer {made['token']}"}
    )
    with urllib.request.urlopen(asked) as answer:
        assert "train-v100" in {chain["name"] for chain in json.load(answer)["chains"]}


def check_store(containers: Containers) -> None:
    count = "psql -h 127.0.0.1 -U mirage -At -c 'SELECT count(*) FROM links'"
    links = containers.run("exec", "-T", "-e", "PGPASSWORD=mirage", "db", "sh", "-c", count)
    assert int(links) >= LINKS * 5
    said = containers.run("exec", "-T", "mirage", "mirage", "db", "status", "--config", "/etc/mirage/mirage.toml")
    assert "up to date" in said
    copy = containers.run("exec", "-T", "mirage", "mirage", "db", "backup", "--config", "/etc/mirage/mirage.toml")
    listed = containers.run("exec", "-T", "mirage", "pg_restore", "--list", copy.strip())
    assert "TABLE DATA public links" in listed


def test_settings_of_the_compose_file_are_keys_of_the_configuration() -> None:
    from mirage.config.model import Config

    named = re.findall(r"^ +MIRAGE_(\w+?)__(\w+):", FILE.read_text(), re.MULTILINE)
    assert named
    for section, key in named:
        assert key.lower() in Config.model_fields[section.lower()].annotation.model_fields  # type: ignore[union-attr]


def test_the_page_is_published_to_this_machine_only() -> None:
    published = re.findall(r"^ +- (\S*:\d+)$", FILE.read_text(), re.MULTILINE)
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.skipif(not succeeds("docker", "--version"), reason="no docker to ask for its daemon")
def test_compose_accepts_the_file() -> None:
    for words in (("docker", "compose"), ("docker-compose",)):
        if succeeds(*words, "version"):
            argv = [*words, "-f", str(FILE), "config", "-q"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return
    pytest.skip("neither docker compose nor docker-compose is installed")
