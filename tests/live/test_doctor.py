"""``mirage doctor`` on a real Slurm."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed


@pytest.fixture
def findings(testbed: Testbed, tmp_path: Path):
    file = tmp_path / "mirage.toml"
    file.write_text(
        f'[service]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}"\n'
        f'[cluster]\nslurm_conf = "{testbed.conf}"\nclock = "{testbed.clock}"\ntimeout = 10\n'
    )

    def examine() -> dict[str, list[dict[str, str]]]:
        result = CliRunner().invoke(app, ["doctor", "--json", "--config", str(file)], catch_exceptions=False)
        found: dict[str, list[dict[str, str]]] = {}
        for finding in json.loads(result.stdout)["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        return found

    return examine


def test_a_testbed_is_fit_for_chains(findings, testbed: Testbed) -> None:
    found = findings()
    for check in ("controller", "munge", "versions", "partitions", "clock", "cluster", "memory", "backfill"):
        assert found[check][0]["level"] == "ok", found[check]
    assert testbed.slurm_version in found["versions"][0]["found"]
    if testbed.privileged:
        assert found["history"][0]["level"] == "ok"
        assert found["accounting"][0]["level"] == "ok"


def test_a_controller_that_is_gone_is_the_first_thing_said(findings, testbed: Testbed) -> None:
    testbed.service("slurmctld", "stop")
    try:
        assert findings()["controller"][0]["level"] == "fail"
    finally:
        testbed.service("slurmctld", "start")
