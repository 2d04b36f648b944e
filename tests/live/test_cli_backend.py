"""The cli back end under the contract of every adapter, on a real Slurm."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
from backends.contract import Contract, World
from live_world import TestbedWorld

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

COMMANDS = ("squeue", "sinfo", "sacct", "sbatch", "scancel", "scontrol")


class CliWorld(TestbedWorld):
    """Slurm's commands as the user runs them, on the real clock."""

    def __init__(self, testbed: Testbed, programs: Path) -> None:
        super().__init__(testbed)
        user = self.facts.user
        environment = testbed.plain_environment(user)
        commands = Commands(environment | {"PATH": run_as(user, programs, environment["PATH"])}, timeout=5)
        self.cluster = CliCluster(commands, self)
        self.actuator = self.estimator = CliActuator(commands, user)


def run_as(user: str, programs: Path, path: str) -> str:
    """A PATH on which each of Slurm's commands runs as ``user``."""
    if os.geteuid() != 0:
        return path
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    for command in COMMANDS:
        real = shutil.which(command, path=path)
        assert real is not None
        program = programs / command
        program.write_text(f'#!/bin/sh\nexec {shlex.join(become)} {real} "$@"\n')
        program.chmod(0o755)
    return f"{programs}:{path}"


class TestCli(Contract):
    @pytest.fixture
    def world(self, privileged_testbed: Testbed, tmp_path: Path) -> World:
        return CliWorld(privileged_testbed, tmp_path)
