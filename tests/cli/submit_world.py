"""``mirage submit`` as a process, in a directory with a batch script and a Slurm of two partitions."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """\
#!/bin/bash
#SBATCH --nodes=2 --gres=gpu:a100:4
#SBATCH -t 2-00:00:00
#MIRAGE --links 8   # not for ever
srun train
"""
SCONTROL = """\
#!/bin/sh
echo "PartitionName=cpu Default=YES DefaultTime=NONE MaxTime=1-00:00:00"
echo "PartitionName=gpu Default=NO DefaultTime=01:00:00 MaxTime=2-00:00:00"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Holds a batch script, and a scontrol that knows two partitions."""
    (tmp_path / "train.sh").write_text(SCRIPT)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scontrol").write_text(SCONTROL)
    (tmp_path / "bin" / "scontrol").chmod(0o755)
    return tmp_path


def submit(
    folder: Path, *arguments: str, stdin: bytes = b"", program: str = "submit", shell: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it in ``folder``, preceded by ``shell``; no daemon can be found unless ``MIRAGE_SOCKET`` is given.

    The loops of these tests submit nothing, so no command waits for a first link.
    """
    environment = {
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "HOME": str(folder),
        "MIRAGE_SOCKET": f"{folder}/none.sock",
    }
    if "PYTHONPATH" in os.environ:  # this checkout is not the one that is installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    code = "from mirage.cli.submit import main; main()"
    argv = [sys.executable, "-c", code] if program == "mbatch" else [sys.executable, "-m", "mirage", program]
    if shell:
        argv = ["/bin/sh", "-c", f'{shell} "$@"', "sh", *argv]
    done = subprocess.run(
        [*argv, "--no-wait", *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env=environment | variables,
        check=False,
    )
    out, err = done.stdout.decode("utf-8", "surrogateescape"), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)
