"""``--controller``: what is refused, and the script that the jobs of the chains run."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from cli.submit_world import folder, submit

from mirage.cli.controllers import _script, drive_by_jobs
from mirage.config.places import CONTROLLER, Places
from mirage.domain.errors import ConfigError
from mirage.slurm.shares_and_partitions import partitions_without_submission

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder"]

PARTITIONS = """PartitionName=cpu AllocNodes={hosts} Default=YES QoS=N/A Nodes=n[1-3] MaxTime=1-00:00:00
PartitionName=gpu AllocNodes=ALL Default=NO QoS=N/A Nodes=g1 MaxTime=1-00:00:00
"""


@pytest.mark.parametrize(
    ("hosts", "partition", "closed"),
    [
        ("login[1-2]", "", ("cpu",)),
        ("login1,n[1-2]", "cpu,gpu", ("cpu",)),
        ("login1,n[1-4]", "", ()),
        ("ALL", "cpu", ()),
        ("login1", "gpu", ()),
        ("login1", "unknown", ()),
    ],
)
def test_partitions_whose_jobs_may_not_submit(hosts: str, partition: str, closed: tuple[str, ...]) -> None:
    assert partitions_without_submission(PARTITIONS.format(hosts=hosts), partition) == closed


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("--controller=someone",), 2, "--controller"),
        (("--controller=job", "--socket=/x"), 2, "--socket"),
        (("--controller=job",), 2, "AllocNodes"),
    ],
)
def test_what_is_refused_before_anything_is_submitted(
    folder: Path, arguments: tuple[str, ...], code: int, named: str
) -> None:
    text = PARTITIONS.format(hosts="login1").splitlines()
    (folder / "bin" / "scontrol").write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in text))
    done = submit(folder, *arguments, "train.sh", MIRAGE_SOCKET="")
    assert (done.returncode, named in done.stderr) == (code, True), done.stderr
    assert not (folder / ".local").exists()


def test_chains_of_a_daemon_are_not_left_behind(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path, shared=tmp_path / "shared")
    (tmp_path / "mirage.db").touch()
    with pytest.raises(ConfigError, match=r"mirage\.db"):
        drive_by_jobs(places)
    assert not (tmp_path / "shared").exists()
    with pytest.raises(ConfigError):
        drive_by_jobs(Places(tmp_path, tmp_path))


def test_the_script_runs_one_look_in_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the job's shell has, such as another search path, and however the directories are called."""
    shared, home = tmp_path / "it's shared", tmp_path / "a home"
    shared.mkdir()
    (home / "bin").mkdir(parents=True)
    for name in ("sbatch", "mirage"):
        program = home / "bin" / name
        program.write_text('#!/bin/sh\n(echo "$@"; env) >"$HOME/seen"; echo complaint >&2; echo 77\n')
        program.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/it's.conf")
    monkeypatch.setattr("mirage.cli.controllers.mirage_words", lambda: [str(home / "bin" / "mirage")])
    (shared / CONTROLLER).write_text(_script(shared))
    (shared / "controller.log").write_bytes(b"x" * (1 << 21))
    done = subprocess.run(
        ["/bin/sh", shared / CONTROLLER], env={"OTHER": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "77\n"
    lines = (home / "seen").read_text().splitlines()
    assert lines[0] == "cycle --turn"
    assert {f"HOME={home}", "SLURM_CONF=/etc/slurm/it's.conf", "MIRAGE_API__ENABLED=false"} <= set(lines)
    assert "OTHER=1" not in lines
    assert any(line.startswith(f"PATH={home}/bin:") for line in lines)
    assert (done.stderr, (shared / "controller.log").read_text()) == ("", "complaint\n")
    (home / "seen").unlink()
    again = subprocess.run(["/bin/sh", shared / CONTROLLER], env={}, capture_output=True, text=True, check=True)
    assert 60 < int(again.stdout) < 77 + 30, "another job has looked"
    assert not (home / "seen").exists()
    for due in ("x", "", "99999999999999999999", str(1 << 40), "0"):
        (shared / "due").write_text(due)
        subprocess.run(["/bin/sh", shared / CONTROLLER], env={}, capture_output=True, check=True)
        assert (home / "seen").exists(), due
        (home / "seen").unlink()
    subprocess.run(["/bin/sh", shared / CONTROLLER, "now"], env={}, capture_output=True, check=True)
    assert (home / "seen").exists()
    (home / "bin" / "mirage").write_text("#!/bin/sh\nexit 1\n")
    failed = subprocess.run(["/bin/sh", shared / CONTROLLER, "now"], env={}, capture_output=True, check=False)
    assert (failed.returncode, failed.stdout) == (1, b"")
