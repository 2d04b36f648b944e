"""The account whose rights root's commands use: a configuration names programs to run and files to write."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from anyone import ANYONE, for_all_users

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = 65_534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = for_all_users(folder) | {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": "/root"}
    argv = [*ANYONE, *words, "--config", str(folder / "mirage.toml")]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, cwd="/")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Slurm's commands there note who runs them."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "ran").touch(0o666)
    (tmp_path / "ran").chmod(0o666)
    for name in ("squeue", "sinfo", "sacct", "scontrol", "sdiag", "sacctmgr", "sshare", "sbatch"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nid -u >>{tmp_path}/ran\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("state", ["missing", "roots"])
@pytest.mark.parametrize("part", ["mirage.toml", "conf.d/more.toml"])
def test_doctor_runs_what_a_users_file_names_as_that_user(folder: Path, state: str, part: str) -> None:
    (folder / "roots").mkdir(mode=0o700)
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "more.toml").touch()
    (folder / "mirage.toml").write_text(f'[service]\nstate = "{folder}/{state}"\nruntime = "{folder}/run"\n')
    os.chown(folder / part, NOBODY, NOBODY)
    run(folder, "doctor")
    ran = set((folder / "ran").read_text().split())
    assert ran == {str(NOBODY)}


def test_db_writes_what_a_users_file_names_as_that_user(folder: Path) -> None:
    (folder / "roots").mkdir(mode=0o700)
    (folder / "mirage.toml").write_text(
        f'[service]\nstate = "{folder}/missing"\n[store]\nurl = "sqlite:///{folder}/roots/mirage.db"\n'
    )
    assert run(folder, "db", "upgrade").returncode == 0
    os.chown(folder / "mirage.toml", NOBODY, NOBODY)
    for words in (["db", "status"], ["db", "cluster", "evil"]):
        done = run(folder, *words)
        assert done.returncode == 1
        assert "Permission denied" in done.stderr, done.stderr
