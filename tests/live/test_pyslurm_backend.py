"""The pyslurm backend under the contract of every adapter, on a real Slurm, where pyslurm is installed."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

import pytest
from acting_process import ActingProcess
from backends.contract import Contract, World
from live_world import TestbedWorld
from slurm_testbed import identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_testbed import Testbed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pyslurm") is None,
    reason="pyslurm is not installed: its adapter is tested on recorded objects only, in test_libslurm.py",
)


class PyslurmWorld(TestbedWorld):
    """libslurm in a process of the user's, with a timeout for real seconds: that process has the real clock."""

    def __init__(self, testbed: Testbed, directory: Path) -> None:
        super().__init__(testbed)
        conf = directory / "slurm.conf"
        conf.write_text(re.sub(r"(?m)^MessageTimeout=.*", "MessageTimeout=10", testbed.conf.read_text()))
        conf.chmod(0o644)
        user = self.facts.user
        environment = testbed.plain_environment(user) | {"SLURM_CONF": str(conf)}
        self.process = ActingProcess("pyslurm_parts:make", environment, identity(user), self.now)
        self.cluster = self.process.part("cluster")
        self.actuator = self.process.part("actuator")


class TestPyslurm(Contract):
    @pytest.fixture
    def world(self, privileged_testbed: Testbed) -> Iterator[World]:
        directory = privileged_testbed.directory / "pyslurm"
        directory.mkdir(exist_ok=True)
        world = PyslurmWorld(privileged_testbed, directory)
        yield world
        world.process.close()
