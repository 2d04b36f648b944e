"""The daemon on a real Slurm, killed repeatedly: every link is submitted once."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

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


def add_chain(folder: Path, links: int) -> None:
    user = getpass.getuser()
    folder.mkdir(mode=0o700)
    directory = str(folder.parent)
    script = BatchScript("#!/bin/sh\nexec sleep 100h\n", (), (("PATH", os.environ["PATH"]),), directory)
    request = JobRequest("svc", user, 20 * 60, partition="cpu", batch=script)
    store = open_store(f"sqlite:///{folder}/mirage.db")
    done = DoneCondition(exit_code=None, links=links)
    store.chains.save(ChainRecord(Chain(ChainId("svc"), "svc", user, request, done)))
    store.close()


def finish(testbed: Testbed, folder: Path, daemon: subprocess.Popen[bytes], links: int) -> None:
    """The chain to its end; every link has been one job that ran to its limit."""
    testbed.wait_until(lambda: record(folder).over, PATIENCE, "the end of the chain")
    daemon.terminate()
    assert daemon.wait(PATIENCE) == 0
    kept = record(folder)
    kept.check()
    assert [link.job_state for link in kept.links] == [JobState.TIMEOUT] * links
    assert len({link.job_id for link in kept.links}) == links
    jobs = testbed.run(getpass.getuser(), ["squeue", "-h", "-a", "-t", "all", "-o", "%i %k"]).stdout.split()
    assert sorted(word for word in jobs if word.startswith("mirage:svc:")) == [link.tag for link in kept.links]


def test_a_chain_outlives_its_daemons(testbed: Testbed, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    add_chain(folder, links=4)
    config = write_config(folder, testbed)
    for links in (1, 2, 3):
        daemon = start(config)
        testbed.wait_until(lambda links=links: len(record(folder).links) >= links, PATIENCE, f"link {links}")
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    finish(testbed, folder, start(config), links=4)


@pytest.mark.parametrize("service", ["slurmctld", "slurmdbd"])
def test_a_chain_outlives_slurms_own_daemons(testbed: Testbed, tmp_path: Path, service: str) -> None:
    """Ten minutes of Slurm's time without it, while each of three links runs."""
    if service == "slurmdbd" and not testbed.privileged:
        pytest.skip("accounting needs a testbed started by root")
    folder = tmp_path / "state"
    add_chain(folder, links=4)
    daemon = start(write_config(folder, testbed))
    for links in (1, 2, 3):
        testbed.wait_until(lambda links=links: len(record(folder).links) >= links, PATIENCE, f"link {links}")
        testbed.service(service, "stop")
        until = testbed.now() + 600
        testbed.wait_until(lambda until=until: testbed.now() >= until, PATIENCE, "ten minutes")
        testbed.service(service, "start")
    finish(testbed, folder, daemon, links=4)
