"""The tutorial's part on a real Slurm, typed by one of its users."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import Testbed, TestbedFailed, identity, state_directory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from console import typed  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 300.0
PROGRAMS = (f"{sys.executable} -m mirage", "/usr/bin/python3 -m mirage")
"""Other users may not be able to run this very Python; the system's is good where it is the same version."""


class Shell:
    """A user's shell on a testbed, in an empty home with a ``mirage`` that the user can run."""

    def __init__(self, testbed: Testbed, home: Path) -> None:
        self.testbed = testbed
        self.user = testbed.users[0] if testbed.privileged else getpass.getuser()
        self.home = home
        self.environment = testbed.plain_environment(self.user) | {
            "HOME": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (home / "bin").mkdir()
        self.environment["PATH"] = f"{home / 'bin'}:{self.environment['PATH']}"
        self.processes: list[subprocess.Popen[str]] = []
        for path in (home, home / "bin"):
            shutil.chown(path, self.user)
        self._find_program()

    def type(self, command: str) -> str:
        """What the command says; one that ends in ``&`` goes on."""
        whole = command.replace("CHECKOUT", str(ROOT))
        background = whole.endswith("&") and not whole.endswith("&&")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {whole.removesuffix('&')}" if background else whole],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            cwd=self.home,
            **identity(self.user),
        )
        if background:
            self.processes.append(process)
            return ""
        said, _ = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise TestbedFailed(f"{command}: exit {process.returncode}: {said}")
        return said

    def says(self, command: str, words: str) -> bool:
        try:
            return words in self.type(command)
        except TestbedFailed:
            return False

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)

    def _find_program(self) -> None:
        path = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
        for program in PROGRAMS:
            file = self.home / "bin" / "mirage"
            file.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {program} "$@"\n')
            file.chmod(0o755)
            if self.says("mirage --version", "mirage"):
                return
        pytest.skip(f"{self.user} may run neither this Python nor a /usr/bin/python3 of the same version")


@pytest.fixture
def shell(testbed: Testbed) -> Iterator[Shell]:
    home = state_directory("tutorial")
    home.mkdir(mode=0o755)
    shell = Shell(testbed, home)
    try:
        yield shell
    finally:
        shell.end()
        shutil.rmtree(home)


def test_on_a_real_slurm(shell: Shell) -> None:
    steps = list(typed((ROOT / "docs/tutorial.md").read_text(), "A real Slurm, on this machine"))
    commands = [step.command for step in steps]
    assert {"mirage submit train.sh", "mirage daemon >daemon.log 2>&1 &"} <= set(commands)
    for step in steps:
        if step.command == "mirage doctor":
            shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
        if step.command == "mirage chain show train":
            shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), PATIENCE, "its end")
            shell.testbed.wait_until(
                lambda: not shell.says("mirage chain show train", "RUNNING"), PATIENCE, "the end of its last job"
            )
        if step.command != "kill %1":
            step.check(shell.type(step.command))
    shown = shell.type("mirage chain show train")
    links = [line.split() for line in shown.partition("LINK ")[2].splitlines()[1:]]
    assert [link[2] for link in links] in (["COMPLETED"] * 2, ["COMPLETED"] * 3), "a third one finds nothing to do"
    logs = "".join((shell.home / f"train-{link[1]}.log").read_text() for link in links)
    assert "link 1 goes on from step 0" in logs
    saved = int(logs.partition("saved at step ")[2].split()[0])
    assert f"link 2 goes on from step {saved}" in logs


def test_a_server_of_the_documents_hands_over_without_an_interruption(shell: Shell) -> None:
    for command in ("cp CHECKOUT/docs/examples/serve.* .", "mirage daemon >daemon.log 2>&1 &"):
        shell.type(command)
    shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
    shell.type("mirage submit serve.sh")
    shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), PATIENCE, "three links")
    shown = shell.type("mirage chain show serve")
    assert "Hand-overs  2, 00:00:00 without a link" in shown
    logs = "".join(path.read_text() for path in shell.home.glob("serve-*.log"))
    assert [f"link {index} answers" in logs for index in (1, 2, 3)] == [True] * 3
    assert logs.count("made way") >= 2
