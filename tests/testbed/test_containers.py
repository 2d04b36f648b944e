"""The testbed's images and its compose file: what they are made of and, where containers can be run, alive."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from containers import Containers, compose_command, copied, wait_until
from slurm_testbed import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = PROGRAM.parents[1]
DOCKERFILE = PROGRAM.parent / "Dockerfile"
COMPOSE_FILE = PROGRAM.parent / "compose.yaml"


def instructions(word: str) -> list[list[str]]:
    """The arguments of each such instruction, continued lines joined."""
    joined = DOCKERFILE.read_text().replace("\\\n", " ")
    return [line.split()[1:] for line in joined.splitlines() if line.startswith(f"{word} ")]


def sources() -> list[str]:
    """The files that the images take from the project, relative to its root."""
    return [source for arguments in instructions("COPY") for source in arguments[:-1]]


def installed_packages() -> set[str]:
    """By either image."""
    found = set()
    for arguments in instructions("RUN"):
        command = " ".join(arguments)
        for listed in re.findall(r"apt-get install (.*?) &&", command):
            found |= {word for word in listed.split() if not word.startswith("-")}
    return found


def test_packages_are_those_of_continuous_integration() -> None:
    listed = re.search(r"packages=\((.*?)\)", (ROOT / ".ci" / "run").read_text(), re.DOTALL)
    assert listed
    assert installed_packages() <= set(listed.group(1).split())


def test_packages_are_all_that_the_testbed_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    programs = importlib.import_module("onehost.programs")
    asked_for = set(programs.PACKAGES.values()) | set(programs.ACCOUNTING_PACKAGES.values())
    assert asked_for | {"slurm-wlm-jwt-plugin", "faketime", "python3"} <= installed_packages()


@pytest.mark.parametrize("source", sources())
def test_what_is_copied_is_there_and_not_ignored(source: str) -> None:
    assert (ROOT / source).exists()
    ignored = (PROGRAM.parent / "Dockerfile.dockerignore").read_text().split()
    assert "*" in ignored
    assert any(f"!{place}" in ignored for place in (source, *map(str, Path(source).parents)))


def test_settings_of_the_compose_file_are_options_of_the_testbed() -> None:
    entry = (PROGRAM.parent / "container" / "slurm").read_text()
    offered = subprocess.run([PROGRAM, "fg", "--help"], capture_output=True, text=True, check=True).stdout
    passed_on = dict(re.findall(r"\$\{(TESTBED_\w+):\+(--[\w-]+) ", entry))
    assert set(passed_on) == set(re.findall(r"^ +(TESTBED_\w+):", COMPOSE_FILE.read_text(), re.MULTILINE))
    assert all(option in offered for option in passed_on.values())


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[Containers]:
    """Built from exactly what the Dockerfile names, so that nothing else in a checkout can matter."""
    compose = compose_command()
    copied((*sources(), "slurm-testbed/Dockerfile", "slurm-testbed/compose.yaml"), tmp_path)
    made = Containers(compose, tmp_path / "slurm-testbed" / "compose.yaml", f"mirage-test-{os.getpid()}")
    try:
        made.run("up", "-d", "--build")
        yield made
    finally:
        made.run("down", "--volumes", "--rmi", "local")


def test_up_jobs_chains_down(containers: Containers) -> None:
    for service in ("slurm", "mirage"):
        wait_until(lambda name=service: containers.health(name) == "healthy", lambda: containers.run("logs"))
    partitions = containers.run("exec", "-T", "slurm", "sinfo", "-h", "-o", "%R").split()
    assert set(partitions) == {"cpu", "v100", "a100", "debug", "npu"}
    check_clock(containers)
    check_job(containers)
    check_chain(containers)
    containers.run("down", "--volumes")
    assert containers.left() == ""


def check_clock(containers: Containers) -> None:
    """60 Slurm seconds a real one: between the two readings lie the inner span at least, the outer one at most."""
    begun = time.time()
    first = float(containers.login("alice", "slurm", "date +%s.%N"))
    inner_begun = time.time()
    time.sleep(2)
    inner_end = time.time()
    second = float(containers.login("alice", "slurm", "date +%s.%N"))
    assert inner_end - inner_begun - 0.1 <= (second - first) / 60 <= time.time() - begun + 0.1


def check_job(containers: Containers) -> None:
    """Two nodes with four GPUs each, as alice, who sees them and is accounted for."""
    script = 'sleep 2m; echo "$CUDA_VISIBLE_DEVICES $(id -un)"; srun printenv SLURMD_NODENAME | sort'
    job = "sbatch --wait -p a100 -N2 --gres=gpu:a100:4 -t 30 -o out"
    said = containers.login("alice", "slurm", f"{job} --wrap '{script}' >/dev/null; cat out")
    assert said.splitlines() == ["0,1,2,3 alice", "a100-001", "a100-002"]
    ask = "sacct -X -n -P -u alice -o state,nnodes,elapsedraw"
    wait_until(
        lambda: "COMPLETED" in containers.login("alice", "slurm", ask),
        lambda: containers.login("alice", "slurm", ask),
    )
    state, nodes, elapsed = containers.login("alice", "slurm", ask).strip().split("|")
    assert (state, nodes) == ("COMPLETED", "2")
    assert 120 <= int(elapsed) <= 1800


def check_chain(containers: Containers) -> None:
    """The daemon, a plain user, submits bob's links as bob through sudo."""
    wanted = "--links 2 --done-exit-code none -p v100 --gres=gpu:v100:1 -t 10 --wrap 'sleep 5m'"
    chain = containers.login("bob", "mirage", f"mirage submit --parsable {wanted}").strip()

    def told() -> dict[str, object]:
        found: dict[str, object] = json.loads(
            containers.login("bob", "mirage", f"mirage chain show {chain} --json")
        )
        return found

    wait_until(lambda: told()["status"] == "done", lambda: json.dumps(told()))
    ask = "sacct -X -n -P -u bob -o user,state"
    wait_until(
        lambda: containers.login("bob", "slurm", ask).split() == ["bob|COMPLETED"] * 2,
        lambda: containers.login("bob", "slurm", ask),
    )
    assert containers.run("exec", "-T", "mirage", "id", "-un").strip() == "mirage"
