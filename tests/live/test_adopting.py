"""``mirage adopt`` on a real Slurm: a job that runs becomes link 1, and the next link follows it."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from test_daemon import MAIN, PATIENCE, record, start, write_config

from mirage.domain.job import JobState

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

SCRIPT = "#!/bin/sh\n#SBATCH --time=2:00:00 --output=/dev/null\ntrap '' USR2\nexec sleep 100h\n"
OPTIONS = [
    "--partition=cpu",
    "--time=40",
    "--nodes=2",
    "--ntasks=2",
    "--signal=B:USR2@60",
    "--exclusive",
    "--mem=1G",
]
ALIKE = ("Partition", "TimeLimit", "NumNodes", "NumTasks", "MinMemoryNode", "OverSubscribe", "WorkDir", "Account")


def shown(testbed: Testbed, job: object) -> dict[str, str]:
    text = testbed.ask("scontrol", "--oneliner", "show", "job", str(job))
    return dict(word.partition("=")[::2] for word in text.split() if "=" in word)


def alike(testbed: Testbed, job: object) -> dict[str, str]:
    """The properties that both jobs have; of a pending one Slurm shows a range of nodes."""
    fields = shown(testbed, job)
    return {name: fields[name].partition("-")[0] for name in ALIKE if name in fields}


def test_running_job_is_adopted_and_followed_by_one_like_it(testbed: Testbed, tmp_path: Path) -> None:
    me = getpass.getuser()
    sbatch = ["sbatch", "--parsable", "--comment=mine", f"--chdir={tmp_path}", *OPTIONS]
    job = int(testbed.run(me, sbatch, input=SCRIPT).stdout)
    testbed.wait_until(lambda: shown(testbed, job)["JobState"] == "RUNNING", PATIENCE, "the job to run")
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    config = write_config(folder, testbed)
    config.write_text(config.read_text().replace("[api]\nenabled = false\n", ""))
    daemon = start(config)
    testbed.wait_until((folder / "api.sock").exists, PATIENCE, "the daemon")
    environment = testbed.plain_environment(me) | {"MIRAGE_SOCKET": str(folder / "api.sock")}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    argv = [sys.executable, "-c", MAIN, "adopt", str(job), "--links=2", "--done-exit-code=none", "--json"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["chain"]["links"][0]["job_id"] == job
    testbed.wait_until(lambda: record(folder).links[-1].index == 2, PATIENCE, "link 2")
    testbed.wait_until(lambda: record(folder).links[1].job_id, PATIENCE, "its job")
    assert alike(testbed, record(folder).links[1].job_id) == alike(testbed, job)
    testbed.wait_until(lambda: record(folder).over, PATIENCE, "the end of the chain")
    daemon.terminate()
    assert daemon.wait(PATIENCE) == 0
    first, second = record(folder).links
    assert [link.job_state for link in (first, second)] == [JobState.TIMEOUT] * 2
    assert (first.job_id, second.start >= first.end) == (job, True)
