"""Two daemons as they are installed, on one fake Slurm and one PostgreSQL."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

from daemons import wait_until
from sites import MAIN, Site

from mirage.bootstrap.cluster import own_user
from mirage.control.clocks import AcceleratedClock
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition
from mirage.domain.job import BatchScript, JobRequest
from mirage.provisioner import machine
from mirage.provisioner.events import PauseAsked
from mirage.store.leases import SqlLeases
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.lease import Lease

RATE = 600
LEASE = 4


class Head:
    """A daemon with separate name, directories and socket."""

    def __init__(self, site: Site, name: str, url: str, lease: int) -> None:
        self.site, self.name = site, name
        self.folder = site.folder / name
        self.folder.mkdir()
        self.socket = self.folder / "run" / "api.sock"
        self.config = self.folder / "mirage.toml"
        self.config.write_text(
            f'[service]\nname = "{name}"\nstate = "{self.folder}/state"\nruntime = "{self.folder}/run"\n'
            f'[store]\nurl = "{url}"\nlease = {lease}\nhistory = 0\n'
            f'[cluster]\nclock = "{site.folder}/clock.json"\ntimeout = 60\n'
            '[loop]\npredictor = "reactive"\nsettle = "12s"\ninterval = "3m"\nlongest_interval = "3m"\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Head:
        environment = os.environ | self.site.slurm.environment(own_user())
        argv = [sys.executable, "-c", MAIN, "daemon", "--config", str(self.config)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, env=environment, stderr=log)
        return self

    def mirage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command as a person types it on this head."""
        environment = os.environ | self.site.slurm.environment(own_user()) | {"MIRAGE_SOCKET": str(self.socket)}
        argv = [sys.executable, "-c", MAIN, *arguments]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None

    def call(self, method: str, path: str) -> tuple[int, Any]:
        """Raises ``OSError`` where no process listens."""
        with contextlib.closing(http.client.HTTPConnection("localhost", timeout=60)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self.socket))
            connection.request(method, path)
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def leads(self) -> bool:
        """Whether it reports that it leads; one that does not answer does not lead."""
        try:
            return bool(self.call("GET", "/healthz")[1]["leads"])
        except (OSError, http.client.HTTPException):
            return False

    def stands_by(self) -> bool:
        try:
            document = self.call("GET", "/healthz")[1]
        except (OSError, http.client.HTTPException):
            return False
        return not document["leads"] and "stands by" in document["sentence"]

    def wait_to_lead(self) -> None:
        wait_until(self.leads, f"{self.name} at the head: {self.log}")

    def wait_to_stand_by(self) -> None:
        wait_until(self.stands_by, f"{self.name} standing by: {self.log}")


class Heads(contextlib.AbstractContextManager["Heads"]):
    """Two of them. ``through``: by which address of the database the first one goes."""

    def __init__(self, folder: Path, url: str, through: str = "", lease: int = LEASE, rate: int = RATE) -> None:
        self.url = url
        self.site = Site(folder)
        self.site.clock = AcceleratedClock(self.site.clock.t0, rate)
        (folder / "clock.json").write_text(f'{{"t0": {self.site.clock.t0}, "rate": {rate}}}')
        self.slurm = self.site.slurm
        self.first = Head(self.site, "head1", through or url, lease)
        self.second = Head(self.site, "head2", url, lease)

    def __enter__(self) -> Heads:
        self.slurm.__enter__()
        self.store = open_store(self.url)
        self._clock = threading.Thread(target=self.site.run_clock)
        self._clock.start()
        return self

    def __exit__(self, *error: object) -> None:
        for head in (self.first, self.second):
            head.kill()
        self.site.stop_clock()
        self._clock.join()
        self.slurm.__exit__(*error)
        self.store.database.close()

    def start_both(self) -> None:
        """The first one leads."""
        self.first.start().wait_to_lead()
        self.second.start().wait_to_stand_by()

    def resume(self) -> None:
        """Let the chain begin, now that both heads are there."""
        assert self.first.call("POST", "/api/v1/chains/svc/resume")[0] == 200

    def add_chain(self, links: int, hours: int = 2, *, paused: bool = False) -> None:
        """Before the daemons are started: the one that leads reads the chains once."""
        script = BatchScript(
            "#!/bin/sh\nexec sleep 100h\n", (), (("PATH", "/usr/bin:/bin"),), str(self.site.folder)
        )
        request = JobRequest("svc", own_user(), hours * 3_600, partition="cpu", batch=script)
        done = DoneCondition(exit_code=None, links=links)
        record = ChainRecord(Chain(ChainId("svc"), "svc", own_user(), request, done))
        if paused:
            record = machine.apply(record, PauseAsked("until both heads are there"), 0)
        self.store.chains.save(record)

    def record(self) -> ChainRecord:
        self.store.chains.forget()
        (record,) = self.store.chains.load()
        return record

    def lease(self) -> Lease:
        return SqlLeases(self.store.database).read()

    def submitted(self) -> int:
        """How often ``sbatch`` was called."""
        return self.slurm.count("sbatch")

    def check(self, links: int) -> None:
        """Each link is submitted once, known by its job, and none came before the one ahead of it had begun."""
        record = self.record()
        record.check()
        jobs = self.slurm.jobs()
        assert [job.tag for job in jobs] == [f"mirage:svc:{n}" for n in range(1, links + 1)], self.first.log
        assert [job.job_id for job in jobs] == [link.job_id for link in record.links]
        told = {line.entry.link for line in self.store.journal.read(ChainId("svc"), limit=1_000)}
        assert told >= set(range(1, links + 1)), "the journal reports each link"

    def finish(self, links: int) -> None:
        wait_until(lambda: self.record().over, f"the end of the chain: {self.second.log}")
        self.check(links)


class Proxy:
    """Between a daemon and its database; ``hang`` lets nothing through any more, and closes nothing."""

    def __init__(self, url: str) -> None:
        found = re.search(r"@127\.0\.0\.1:(\d+)/", url)
        assert found is not None
        self._to = int(found[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{self._to}/", f":{self._listener.getsockname()[1]}/")
        self._open = threading.Event()
        self._open.set()
        self._ended = False
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def hang(self) -> None:
        self._open.clear()

    def flow(self) -> None:
        self._open.set()

    def close(self) -> None:
        self._ended = True
        self._open.set()
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._open.wait()
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


STOP, GO, END = signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM
