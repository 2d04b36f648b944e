"""Seven chains of two users on a real Slurm under load; their daemon is killed periodically."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import Testbed, state_directory

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = __file__.rsplit("/tests/", 1)[0] + "/slurm-testbed/scenario"
NODES = "cpu=2,v100=4,a100=4,npu=5"
LINKS = 10
LIMIT_MINUTES = 15
PATIENCE = 570.0


@pytest.fixture
def roomy_testbed(privileged_testbed: Testbed) -> Testbed:
    """Room for seven chains and the load next to them."""
    del privileged_testbed  # it says whether there is one at all
    testbed = Testbed.start(state_directory("scenario"), speed=60, nodes=NODES)
    with testbed.stopped_after():
        yield testbed


def test_chains_live_through_ten_links(roomy_testbed: Testbed, tmp_path: Path) -> None:
    work, report = state_directory("chains"), tmp_path / "report.json"
    argv = [sys.executable, SCENARIO, "--dir", str(roomy_testbed.directory), "--work", str(work)]
    argv += ["--links", str(LINKS), "--limit", str(LIMIT_MINUTES), "--timeout", str(PATIENCE)]
    argv += ["--kill-every", "60", "--json", str(report)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\nthe daemon's words: {work}/daemon.log"
    found = {chain["name"]: chain for chain in json.loads(report.read_text())["chains"]}
    assert len([chain for chain in found.values() if chain["links"] == LINKS]) >= 5
    assert found["early-cpu"]["status"] == "done"
    assert found["broken-cpu"]["status"] == "stopped"
    for name, chain in found.items():
        if chain["links"] == LINKS:
            assert len(chain["interruptions"]) == LINKS - 1, name
    subprocess.run(["rm", "-r", str(work)], check=True)
