"""The small scenarios on a real Slurm, anew: every job starts when its rule says, there and on the simulator."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import PROGRAM, free_ports, state_directory

from mirage.bench.fidelity.expecting import broken, recorded_schedule, simulated_schedule
from mirage.bench.fidelity.playing import play
from mirage.bench.fidelity.recording import read_recording

if TYPE_CHECKING:
    from pathlib import Path

SCENARIOS = 26


def test_every_small_scenario_is_exact(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("several users and accounting: needs root")
    argv = [sys.executable, PROGRAM.with_name("fidelity"), "scenarios", "--speed=240", f"--output={tmp_path}"]
    own = [f"--dir={state_directory('fidelity')}", f"--base-port={free_ports()}"]
    done = subprocess.run([*argv, *own], capture_output=True, text=True, check=False)
    if "not installed:" in done.stderr:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Slurm to test on: {done.stderr}")
    assert done.returncode == 0, done.stderr
    recordings = [read_recording(path) for path in sorted(tmp_path.glob("*.json.gz"))]
    assert len(recordings) == SCENARIOS
    for recording in recordings:
        assert broken(recording, recorded_schedule(recording)) == (), f"{recording.workload} on Slurm"
        went = simulated_schedule(recording, play(recording))
        assert broken(recording, went) == (), f"{recording.workload} on the simulator"
