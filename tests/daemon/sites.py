"""A fake Slurm whose clock runs by itself, and daemons on it as they are installed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from fake_slurm.fake import FakeSlurm

from mirage.bootstrap.cluster import own_user
from mirage.client import Client
from mirage.control.clocks import AcceleratedClock
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition
from mirage.domain.job import BatchScript, JobRequest
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RATE = 3_600
MAIN = "from mirage.cli.main import main; main()"


class Site:
    """A fake Slurm that has been there for ``past`` seconds, and the directory of a daemon."""

    def __init__(self, folder: Path, past: int = 0) -> None:
        self.folder = folder
        self.clock = AcceleratedClock(time.time(), RATE)
        self.slurm = FakeSlurm(folder / "slurm", start_time=self.clock.now() - past)
        (folder / "clock.json").write_text(f'{{"t0": {self.clock.t0}, "rate": {RATE}}}')
        self.config = folder / "mirage.toml"
        self.configure()
        (folder / "state").mkdir(mode=0o700)
        self._ended = threading.Event()

    def configure(self, predictor: str = "reactive", timeout: int = 2) -> None:
        folder = self.folder
        self.config.write_text(
            f'[service]\nstate = "{folder}/state"\nruntime = "{folder}/run"\n'
            f'[cluster]\nclock = "{folder}/clock.json"\ntimeout = {timeout}\n'
            f'[loop]\npredictor = "{predictor}"\nsettle = "1s"\ninterval = "10m"\nlongest_interval = "10m"\n'
        )

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

    @contextlib.contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """One that is killed at the end of the block, if it has not ended."""
        environment = os.environ | self.slurm.environment(own_user())
        argv = [sys.executable, "-c", MAIN, "daemon", "--config", str(self.config)]
        with subprocess.Popen(argv, env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    @property
    def client(self) -> Client:
        return Client(str(self.socket))

    @property
    def socket(self) -> Path:
        return self.folder / "run" / "api.sock"

    def mirage(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command as a person types it."""
        environment = os.environ | {"MIRAGE_SOCKET": str(self.socket)} | variables
        argv = [sys.executable, "-c", MAIN, *arguments]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    def tags(self) -> list[str]:
        """The tags of all submitted jobs of Mirage."""
        return [job.tag for job in self.slurm.jobs() if job.tag]

    def run_clock(self) -> None:
        while not self._ended.wait(0.02):
            self.slurm.advance(max(0, self.clock.now() - self.slurm.now()))

    def stop_clock(self) -> None:
        self._ended.set()


@contextlib.contextmanager
def running_site(
    folder: Path, past: int = 0, prepare: Callable[[Site], None] = lambda site: None
) -> Iterator[Site]:
    """``prepare`` is called before the clock runs, which then catches up with ours immediately."""
    made = Site(folder, past)
    with made.slurm:
        prepare(made)
        thread = threading.Thread(target=made.run_clock)
        thread.start()
        try:
            yield made
        finally:
            made.stop_clock()
            thread.join()
