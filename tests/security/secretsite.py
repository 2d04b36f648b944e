"""A site on a fake Slurm where every place that can hold a secret holds one that is easy to find in text."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from daemon.daemons import wait_until
from daemon.sites import MAIN, Site, running_site

from mirage.bootstrap.cluster import own_user
from mirage.client.errors import ClientError
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition
from mirage.domain.job import BatchScript, JobRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


def canary(place: str) -> str:
    """The text that stands for the secret of one place; long enough for a key."""
    return f"CANARY{place}0123456789abcdef0123456789"


OF_THE_DAEMON = {
    name: canary(name.replace("_", ""))
    for name in (
        *("SLURM_JWT", "SLURMRESTD_TOKEN", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "MIRAGE_CLIENT_TOKEN"),
        *("SSL_KEY_PASSPHRASE", "DATABASE_PASSWORD"),
    )
}
"""Variables of the daemon's own environment."""
OF_THE_OWNER = {name: canary(f"owner{name.replace('_', '')}") for name in ("SLURM_JWT", "MIRAGE_API__TOKEN")}
"""Variables that an owner's environment must not hand on, however they came into the chain."""
FILES = {"jwt.key": canary("jwtkey"), "webhook": f"http://127.0.0.1:9/{canary('webhook')}", "mail": canary("mail")}
PRIVATE = canary("ownersown")
"""A secret that an owner passes to a job, as sbatch does, and that no other user may see."""
ASKED = canary("asked")
"""A credential that a user sends to log in."""


SECTIONS = """
[log]
level = "debug"
[api]
listen = "127.0.0.1:{port}"
[api.jwt]
key = "{folder}/jwt.key"
[notifications]
gap = "1s"
[notifications.webhook]
url_file = "{folder}/webhook"
events = ["link-submitted", "gap", "chain-done"]
[notifications.mail]
server = "127.0.0.1:9"
security = "starttls"
user = "mirage"
password_file = "{folder}/mail"
to = ["admin@localhost"]
"""


@dataclass
class SecretSite:
    """A daemon that has submitted, failed, been asked and been attacked."""

    site: Site
    port: int
    log: Path
    commands: list[str]
    """The command line of every process of the daemon that was seen."""

    def start(self) -> subprocess.Popen[bytes]:
        environment = os.environ | OF_THE_DAEMON | self.site.slurm.environment(own_user())
        argv = [sys.executable, "-c", MAIN, "daemon", "--config", str(self.site.config)]
        return subprocess.Popen(argv, env=environment, stderr=self.log.open("wb"))

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> str:
        """An answer at the network's address, head and all."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            return self._exchange(connection, method, path, body, headers)

    @staticmethod
    def _exchange(
        connection: http.client.HTTPConnection, method: str, path: str, body: str, headers: dict[str, str]
    ) -> str:
        connection.request(
            method, path, body or None, {name.replace("_", "-"): text for name, text in headers.items()}
        )
        with connection.getresponse() as answer:
            return f"{answer.status} {answer.headers}{answer.read().decode('utf-8', 'replace')}"

    def ask_as_administrator(self, path: str) -> str:
        """The document that the socket's side answers root, or why none exists."""
        try:
            return json.dumps(self.site.client.transport.ask_root(path))
        except ClientError as error:
            return str(error)

    def stored(self) -> str:
        """All that is in the database except the scripts and environments of the chains."""
        with contextlib.closing(
            sqlite3.connect(f"file:{self.site.folder}/state/mirage.db?mode=ro", uri=True)
        ) as db:
            return "\n".join(line for line in db.iterdump() if not line.startswith('INSERT INTO "chains"'))

    def note_processes(self, daemon: int) -> None:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if daemon in (int(folder.name), parent):
                    self.commands.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())


def _configure(made: Site, port: int) -> None:
    made.configure(timeout=60)
    for name, secret in FILES.items():
        file = made.folder / name
        file.write_text(secret)
        file.chmod(0o600)
    with made.config.open("a") as config:
        config.write(SECTIONS.format(folder=made.folder, port=port))


def add_chain(made: Site) -> None:
    environment = {"PATH": "/usr/bin:/bin", "WANDB_API_KEY": PRIVATE} | OF_THE_OWNER
    script = BatchScript("#!/bin/sh\nexec sleep 100h\n", (), tuple(environment.items()), str(made.folder))
    request = JobRequest("svc", own_user(), 3 * 3_600, partition="cpu", batch=script)
    store = made.store()
    chain = Chain(ChainId("svc"), "svc", own_user(), request, DoneCondition(exit_code=None, links=1_000))
    store.chains.save(ChainRecord(chain))
    store.close()


def _has_submitted(found: SecretSite, daemon: subprocess.Popen[bytes]) -> bool:
    log = found.log.read_text()
    assert daemon.poll() is None, log
    return "submitted link 1" in log


@contextlib.contextmanager
def secret_site(folder: Path) -> Iterator[SecretSite]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running_site(folder) as made:
        _configure(made, port)
        add_chain(made)
        found = SecretSite(made, port, folder / "log", [])
        with found.start() as daemon:
            try:
                wait_until(lambda: _has_submitted(found, daemon), "the first submission")
                yield found
                found.note_processes(daemon.pid)
            finally:
                daemon.kill()
