"""A PostgreSQL server for tests: on loopback, with a separate data directory, from the system's package."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60
PGBOUNCER = "/usr/sbin/pgbouncer"


class NoPostgres(Exception):
    """The server's programs are not installed."""


def programs() -> Path:
    """The newest installed version's directory of programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise NoPostgres("PostgreSQL is not installed (Debian: apt install postgresql)")
    return found[-1].parent


@dataclass
class PostgresServer:
    """One server, its programs run without root."""

    folder: Path
    port: int
    account: str | None
    """The account to become, where tests run as root, which PostgreSQL rejects."""
    process: subprocess.Popen[bytes] | None = field(default=None)

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[PostgresServer]:
        account = _unprivileged() if os.geteuid() == 0 else None
        programs()
        folder = Path(tempfile.mkdtemp(prefix="mirage-postgres-"))
        if account:
            shutil.chown(folder, account)
        server = cls(folder, _free_port(), account)
        try:
            server.run(
                "initdb", "-D", "data", "-U", "mirage", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
            )
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [programs() / program, *arguments],
            cwd=self.folder,
            user=self.account,
            stdout=subprocess.DEVNULL,
            check=True,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    def start(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": self.folder,
            "shared_buffers": "16MB",
            "max_connections": 40,
            "fsync": "off",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [programs() / "postgres", "-D", "data", *options],
                cwd=self.folder,
                user=self.account,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            )
        self._await_answer()

    def stop(self) -> None:
        """Stop immediately; all connections are cut off."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
            self.process = None

    def url(self, name: str) -> str:
        return f"postgresql://mirage@127.0.0.1:{self.port}/{name}"

    def new_database(self, name: str) -> str:
        """Makes an empty database; returns its URL."""
        with self.connection() as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    @contextlib.contextmanager
    def connection(self, name: str = "postgres") -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            yield connection

    @contextlib.contextmanager
    def pooled(self, name: str) -> Iterator[str]:
        """The URL of a database behind PgBouncer: each transaction may run in another of two sessions."""
        if not Path(PGBOUNCER).exists():
            if "CI" in os.environ:
                pytest.fail("PgBouncer is not installed")
            pytest.skip("PgBouncer is not installed (Debian: apt install pgbouncer)")
        port, settings = _free_port(), self.folder / f"{name}.ini"
        (self.folder / "users.txt").write_text('"mirage" ""\n')
        settings.write_text(
            f"[databases]\n{name} = host=127.0.0.1 port={self.port} user=mirage\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n"
            f"auth_file = {self.folder}/users.txt\npool_mode = transaction\nserver_round_robin = 1\n"
            "default_pool_size = 2\nmin_pool_size = 2\n"
        )
        with (self.folder / "pgbouncer.log").open("ab") as log:
            process = subprocess.Popen([PGBOUNCER, settings], user=self.account, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE
            while not _listens(port):
                assert process.poll() is None, "PgBouncer did not start"
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield f"postgresql://mirage@127.0.0.1:{port}/{name}"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)

    def _await_answer(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self.connection():
                    return
            except psycopg.OperationalError:
                assert self.process is not None
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log').read_text()}") from None
                time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def server_for_tests() -> Iterator[PostgresServer]:
    """For fixtures. Without PostgreSQL their tests skip; in continuous integration they fail."""
    try:
        with PostgresServer.started() as server:
            yield server
    except NoPostgres as error:
        if "CI" in os.environ:
            pytest.fail(str(error))
        pytest.skip(str(error))


def _unprivileged() -> str:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise NoPostgres("there is no user without privileges to run PostgreSQL as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
