"""One round of random failures on a real Slurm; ``slurm-testbed/chaos`` plays fifty."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from slurm_testbed import Testbed, state_directory

if TYPE_CHECKING:
    from pathlib import Path

CHAOS = __file__.rsplit("/tests/", 1)[0] + "/slurm-testbed/chaos"


def test_a_round_of_faults_leaves_each_link_one_job(privileged_testbed: Testbed, tmp_path: Path) -> None:
    work = state_directory("disorder")
    argv = [sys.executable, CHAOS, "--dir", str(privileged_testbed.directory), "--work", str(work)]
    argv += ["--seeds", "2", "--log", str(tmp_path / "rounds.jsonl")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\nthe daemon's words: {work}/*/daemon.log"
    subprocess.run(["rm", "-r", str(work)], check=True)
