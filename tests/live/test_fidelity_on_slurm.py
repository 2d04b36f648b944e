"""Small scenarios on a real Slurm, again: every job starts when its rule says, there and on the simulator."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import PROGRAM, free_ports, state_directory

from mirage.bench.fidelity import broken, recorded_schedule, simulated_schedule
from mirage.bench.recordings import play, read_recording

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirage.bench.recordings import Recording

SCENARIOS = ("backfill", "fair-share", "gres", "hold", "max-jobs")
"""One of each kind of rule; ``slurm-testbed/fidelity scenarios`` records all, which takes long."""
SPEEDS = (120, 60)
"""Delays of commands on a busy machine count half as much with a clock half as fast: that of a second try."""


def test_small_scenarios_are_exact(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("several users and accounting: needs root")
    inexact = {name: (name,) for name in SCENARIOS}
    for speed in SPEEDS:
        for recording in recorded(sorted(inexact), speed, tmp_path / str(speed)):
            went = simulated_schedule(recording, play(recording))
            on_slurm, simulated = broken(recording, recorded_schedule(recording)), broken(recording, went)
            inexact[recording.workload] = (*on_slurm, *(f"{each}, on the simulator" for each in simulated))
        inexact = {name: found for name, found in inexact.items() if found}
    assert inexact == {}


def recorded(names: Sequence[str], speed: int, folder: Path) -> list[Recording]:
    if not names:
        return []
    argv = [sys.executable, PROGRAM.with_name("fidelity"), *names, f"--speed={speed}", f"--output={folder}"]
    own = [f"--dir={state_directory('fidelity')}", f"--base-port={free_ports()}"]
    done = subprocess.run([*argv, *own], capture_output=True, text=True, check=False)
    if "not installed:" in done.stderr:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"no Slurm to test on: {done.stderr}")
    assert done.returncode == 0, done.stderr
    found = [read_recording(path) for path in sorted(folder.glob("*.json.gz"))]
    assert [each.workload for each in found] == sorted(names)
    return found
