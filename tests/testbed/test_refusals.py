"""The testbed program rejects bad input before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import PROGRAM

if TYPE_CHECKING:
    from pathlib import Path


def refusal(*arguments: str, path: str | None = None) -> str:
    environment = os.environ | ({"PATH": path} if path is not None else {})
    argv = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--speed", "0"), "--speed 0: from 1 (the real clock) to 600"),
        (("--speed", "3600"), "--speed 3600: from 1 (the real clock) to 600"),
        (("--nodes", "h100=4"), "--nodes 'h100=4': expected KIND=COUNT with KIND one of cpu, v100, a100, npu"),
        (("--nodes", "cpu=many"), "--nodes 'cpu=many': expected KIND=COUNT with KIND one of cpu, v100, a100, npu"),
        (("--nodes", "cpu=0"), "--nodes cpu=0: at least one node is needed"),
        (("--conf-line", "PriorityFlags"), "--conf-line 'PriorityFlags': expected KEY=VALUE, as in slurm.conf"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    assert refusal("start", "--dir", str(tmp_path), *options).strip() == f"testbed: {said}"
    assert not list(tmp_path.iterdir())


def test_nothing_to_ask_where_no_testbed_runs(tmp_path: Path) -> None:
    for command in (("status",), ("env",), ("repair",), ("service", "slurmctld", "kill"), ("token", "alice")):
        assert (
            refusal(*command, "--dir", str(tmp_path)).strip()
            == f"testbed: no testbed runs in {tmp_path}; start it first"
        )


def test_wipe_deletes_only_testbeds(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    assert refusal("wipe", "--dir", str(tmp_path)).endswith(f"{tmp_path} holds no testbed; nothing was deleted\n")
    assert (tmp_path / "precious").exists()
