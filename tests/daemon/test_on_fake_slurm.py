"""``mirage daemon`` as it is installed, on commands that only look like Slurm's, and what goes wrong with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import FakeSlurm, Fault

from mirage.bootstrap.worlds import own_user
from mirage.control.wallclock import AcceleratedClock
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition
from mirage.domain.job import BatchScript, JobRequest
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RATE = 3_600
MAIN = "from mirage.cli.main import main; main()"


class Site:
    """A fake Slurm whose clock runs by itself, and the folder of a daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = AcceleratedClock(time.time(), RATE)
        self.slurm = FakeSlurm(folder / "slurm", start_time=self.clock.now())
        (folder / "clock.json").write_text(f'{{"t0": {self.clock.t0}, "rate": {RATE}}}')
        self.config = folder / "mirage.toml"
        self.config.write_text(
            f'[service]\nstate = "{folder}/state"\nruntime = "{folder}/run"\n'
            f'[cluster]\nclock = "{folder}/clock.json"\ntimeout = 2\n'
            '[loop]\npredictor = "reactive"\nsettle = "1s"\nlongest_interval = "2m"\n'
        )
        (folder / "state").mkdir(mode=0o700)
        self._ended = threading.Event()

    def store(self):
        return open_store(f"sqlite:///{self.folder}/state/mirage.db")

    def add_chain(self, links: int) -> None:
        script = BatchScript("#!/bin/sh\nexec sleep 100h\n", (), (("PATH", "/usr/bin:/bin"),), str(self.folder))
        request = JobRequest("svc", own_user(), 3 * 3_600, partition="cpu", batch=script)
        store = self.store()
        done = DoneCondition(exit_code=None, links=links)
        store.chains.save(ChainRecord(Chain(ChainId("svc"), "svc", own_user(), request, done)))
        store.close()

    def record(self) -> ChainRecord:
        store = self.store()
        (record,) = store.chains.load()
        store.close()
        return record

    def start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | self.slurm.environment(own_user())
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, "daemon", "--config", str(self.config)], env=environment
        )

    def run_clock(self) -> None:
        while not self._ended.wait(0.02):
            self.slurm.advance(max(0, self.clock.now() - self.slurm.now()))

    def stop_clock(self) -> None:
        self._ended.set()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    with made.slurm:
        thread = threading.Thread(target=made.run_clock)
        thread.start()
        yield made
        made.stop_clock()
        thread.join()


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"squeue": [Fault.HANG, Fault.CUT_OFF, Fault.GARBAGE, Fault.EMPTY]},
        {"sbatch": [Fault.LOSE_ANSWER, Fault.HANG]},
        {"sinfo": [Fault.GARBAGE, Fault.HANG], "sacct": [Fault.HANG, Fault.GARBAGE]},
    ],
    ids=lambda faults: "-".join(faults) or "none",
)
def test_every_link_is_submitted_once_whatever_the_commands_do(site: Site, faults: dict[str, list[Fault]]) -> None:
    site.add_chain(links=3)
    for command, kinds in faults.items():
        for kind in kinds:
            site.slurm.fault(command, kind)
    daemon = site.start()
    try:
        wait_until(lambda: site.record().over, "the end of the chain")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(120) == 0
    finally:
        daemon.kill()
        daemon.wait()
    record = site.record()
    record.check()
    assert [job.tag for job in site.slurm.jobs()] == [f"mirage:svc:{n}" for n in (1, 2, 3)]
    assert [job.job_id for job in site.slurm.jobs()] == [link.job_id for link in record.links]


def test_a_cycle_asks_three_questions_at_most(site: Site) -> None:
    site.add_chain(links=2)
    daemon = site.start()
    try:
        wait_until(lambda: site.record().over, "the end of the chain")
    finally:
        daemon.terminate()
        daemon.wait(120)
    looks = site.slurm.count("squeue")
    windows = 31
    """Of a day each, by which the first import looks back a month."""
    assert site.slurm.count("sinfo") <= looks
    assert site.slurm.count("sacct") <= looks + windows
