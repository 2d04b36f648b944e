"""A gateway on the devices of a real Slurm's nodes, handed over from link to link under load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import PROGRAM, free_ports, state_directory

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RATE = 50
PARTS = ("one link", "the second gets ready", "handover, the first drains", "the second alone")


def test_a_link_hands_its_gateway_over_to_the_next_and_no_request_fails(tmp_path: Path) -> None:
    argv = [sys.executable, PROGRAM.with_name("serving"), f"--rate={RATE}", f"--json={tmp_path}/figures.json"]
    own = [f"--dir={state_directory('serving')}", f"--base-port={free_ports()}"]
    done = subprocess.run([*argv, *own], capture_output=True, text=True, check=False)
    if "not installed:" in done.stderr:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Slurm to test on: {done.stderr}")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    found = json.loads((tmp_path / "figures.json").read_text())
    submitted, taken_over, ended = found["seconds"].values()
    assert 10.0 <= submitted < taken_over < ended
    assert tuple(found["parts"]) == PARTS
    assert all(part["failed"] == 0 < part["requests"] for part in found["parts"].values())
    spans = (submitted, taken_over - submitted, ended - taken_over)
    for part, seconds in zip(PARTS, spans, strict=False):
        count = found["parts"][part]["requests"]
        assert abs(count - RATE * seconds) < 6 * (RATE * seconds) ** 0.5 + RATE, "asked on and on, at its rate"
    assert "0 of " in done.stdout
