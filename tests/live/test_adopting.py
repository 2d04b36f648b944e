"""Jobs of plain ``sbatch`` on a real Slurm become link 1, and the next link follows.

By ``mirage adopt``, or by themselves where they ask for it.
"""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from test_daemon import MAIN, PATIENCE, record, start, write_config

from mirage.domain.job import JobState
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

    from mirage.domain.chain import ChainRecord

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


MARKED = "#!/bin/sh\n#SBATCH --output=/dev/null -p cpu -t 20\n#MIRAGE --links=2 --done-exit-code=none\n"
SLEEP = "exec sleep 100h\n"


def chains(folder: Path) -> dict[int, ChainRecord]:
    """By the job that is link 1."""
    store = open_store(f"sqlite:///{folder}/mirage.db")
    found = {int(record.links[0].job_id): record for record in store.chains.load()}
    store.close()
    return found


def submitted(testbed: Testbed, folder: Path, name: str, script: str, *options: str) -> int:
    argv = ["sbatch", "--parsable", f"--chdir={folder}", f"--job-name={name}", *options]
    return int(testbed.run(getpass.getuser(), argv, input=script).stdout)


def test_jobs_that_ask_for_a_chain_become_one_by_themselves(testbed: Testbed, tmp_path: Path) -> None:
    plain = MARKED.replace("#MIRAGE", "# MIRAGE") + SLEEP
    jobs = {
        "runs": submitted(testbed, tmp_path, "runs", MARKED + SLEEP),
        "waits": submitted(testbed, tmp_path, "waits", MARKED + SLEEP, "--hold"),
        "comment": submitted(testbed, tmp_path, "comment", plain, "--hold", "--comment=mirage: --links 7"),
        "plain": submitted(testbed, tmp_path, "plain", plain, "--hold"),
        "off": submitted(testbed, tmp_path, "off", MARKED + SLEEP, "--hold", "--comment=mirage:off"),
        "fault": submitted(testbed, tmp_path, "fault", MARKED.replace("links=2", "links=two") + SLEEP, "--hold"),
        "array": submitted(testbed, tmp_path, "array", MARKED + SLEEP, "--hold", "--array=1-3"),
    }
    testbed.wait_until(lambda: shown(testbed, jobs["runs"])["JobState"] == "RUNNING", PATIENCE, "the job to run")
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    config = write_config(folder, testbed)
    config.write_text(config.read_text().replace("[api]\nenabled = false\n", ""))
    daemon = start(config)
    try:
        told = [jobs["fault"], jobs["array"]]
        testbed.wait_until(lambda: len(chains(folder)) == 3, PATIENCE, "three chains")
        testbed.wait_until(
            lambda: all("mirage:off" in shown(testbed, job).get("Comment", "") for job in told),
            PATIENCE,
            "the word",
        )
        found = chains(folder)
        assert set(found) == {jobs["runs"], jobs["waits"], jobs["comment"]}
        assert found[jobs["comment"]].chain.done.links == 7
        assert {shown(testbed, job).get("Comment") for job in found} == {r.chain.tag(1) for r in found.values()}
        assert shown(testbed, jobs["plain"]).get("Comment") is None
        assert shown(testbed, jobs["off"])["Comment"] == "mirage:off"
        testbed.wait_until(
            lambda: any(link.index == 2 and link.job_id for link in chains(folder)[jobs["runs"]].links),
            PATIENCE,
            "the next link in place",
        )
        next_link = chains(folder)[jobs["runs"]].links[1].job_id
        assert alike(testbed, next_link) == alike(testbed, jobs["runs"])
        daemon.kill()
        daemon.wait()
        daemon = start(config)
        testbed.wait_until(lambda: chains(folder)[jobs["runs"]].over, PATIENCE, "the end of the chain")
        assert len(chains(folder)) == 3
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE)
        testbed.ask("scancel", "--me")
