"""The daemon on a real Slurm, killed again and again: every link is submitted once."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition
from mirage.domain.job import BatchScript, JobRequest, JobState
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

PATIENCE = 300.0
MAIN = "from mirage.cli.main import main; main()"


def write_config(folder: Path, testbed: Testbed) -> Path:
    file = folder / "mirage.toml"
    file.write_text(
        f'[service]\nstate = "{folder}"\nruntime = "{folder}"\n'
        f'[cluster]\nslurm_conf = "{testbed.conf}"\nclock = "{testbed.clock}"\n'
        '[loop]\npredictor = "fixed:10m"\nsettle = "5s"\n[api]\nenabled = false\n'
    )
    return file


def start(config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", MAIN, "daemon", "--config", str(config)])


def record(folder: Path) -> ChainRecord:
    store = open_store(f"sqlite:///{folder}/mirage.db")
    (found,) = store.chains.load()
    store.close()
    return found


def test_a_chain_outlives_its_daemons(testbed: Testbed, tmp_path: Path) -> None:
    user, folder = getpass.getuser(), tmp_path / "state"
    folder.mkdir(mode=0o700)
    script = BatchScript("#!/bin/sh\nexec sleep 100h\n", (), (("PATH", os.environ["PATH"]),), str(tmp_path))
    request = JobRequest("svc", user, 20 * 60, partition="cpu", batch=script)
    store = open_store(f"sqlite:///{folder}/mirage.db")
    done = DoneCondition(exit_code=None, links=4)
    store.chains.save(ChainRecord(Chain(ChainId("svc"), "svc", user, request, done)))
    store.close()
    config = write_config(folder, testbed)
    for links in (1, 2, 3):
        daemon = start(config)
        testbed.wait_until(lambda links=links: len(record(folder).links) >= links, PATIENCE, f"link {links}")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    daemon = start(config)
    testbed.wait_until(lambda: record(folder).over, PATIENCE, "the end of the chain")
    daemon.terminate()
    assert daemon.wait(PATIENCE) == 0
    kept = record(folder)
    kept.check()
    assert [link.job_state for link in kept.links] == [JobState.TIMEOUT] * 4
    assert len({link.job_id for link in kept.links}) == 4
    jobs = testbed.run(user, ["squeue", "-h", "-a", "-t", "all", "-o", "%i %k"]).stdout.split()
    assert sorted(word for word in jobs if word.startswith("mirage:svc:")) == [link.tag for link in kept.links]
