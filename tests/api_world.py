"""A real server on a real socket, over a loop that a test drives manually."""

from __future__ import annotations

import http.client
import json
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirage.api.access.authentication import Authenticator
from mirage.api.port import ApiService
from mirage.api.server import ApiServer
from mirage.backends.agent_queue import AgentQueue
from mirage.control.commands import CommandQueue
from mirage.control.status import Status
from mirage.domain.command import LiftProtection
from mirage.domain.errors import MirageError
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.snapshot import Snapshot
from mirage.provisioner import commands
from mirage.provisioner.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.chain import ChainId, ChainRecord

START = 1_700_000_000


@dataclass
class HandLoop:
    """Executes commands as the real loop does, in a thread, and publishes a status after each round."""

    records: list[ChainRecord] = field(default_factory=list)
    journal: list[Entry] = field(default_factory=list)
    commands: CommandQueue = field(default_factory=CommandQueue)
    status: Status = field(default_factory=lambda: Status(START, "nothing yet", Snapshot.unseen(START)))
    ended: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    """No cycle comes any more."""

    def cycle(self) -> None:
        for asked in self.commands.take_all():
            if isinstance(asked.command, LiftProtection):
                self.status = replace(self.status, protection=None)
                asked.answer.set_result(commands.sentence(asked.command))
                continue
            try:
                record = commands.apply_command(Tally.of(self.records, START), asked.command, START)
            except MirageError as error:
                asked.answer.set_exception(error)
                continue
            others = [other for other in self.records if other.chain.chain_id != record.chain.chain_id]
            self.records = [*others, record]
            text = commands.sentence(asked.command)
            self.journal.append(Entry(START, record.chain.chain_id, EntryKind.COMMAND, text))
            asked.answer.set_result(text)
        explained = {record.chain.chain_id: "hold: it is early" for record in self.records}
        self.status = replace(
            self.status,
            sentence="did what was asked",
            chains=tuple(self.records),
            explained=explained,
            cycles=self.status.cycles + 1,
        )

    def run(self) -> None:
        while not self.ended.is_set():
            self.commands.wait(0.05)
            self.cycle()
        self.over.set()

    def entries(self, chain: ChainId, limit: int) -> tuple[Entry, ...]:
        return tuple(entry for entry in reversed(self.journal) if entry.chain == chain)[:limit]


@dataclass
class World:
    """The objects that a test of the API uses."""

    loop: HandLoop
    desk: AgentQueue
    socket: Path
    service: ApiService

    def call(self, method: str, path: str, body: Any = None, user: str = "") -> tuple[int, Any]:
        """Status and document of one request, by this process or by ``user``."""
        if user:
            return self.call_as(user, method, path, body)
        return call(str(self.socket), method, path, body)

    def call_as(self, user: str, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The same from a process of another user."""
        entry = pwd.getpwnam(user)
        done = subprocess.run(
            [sys.executable, "-I", "-c", CLIENT],
            input=json.dumps([entry.pw_uid, entry.pw_gid, str(self.socket), method, path, body]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        status, document = json.loads(done.stdout)
        return status, document


def call(path: str, method: str, target: str, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    text = body if isinstance(body, bytes | str | None) else json.dumps(body)
    connection.request(method, target, text, {"Content-Type": "application/json"} if text else {})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, json.loads(content) if content else None


CLIENT = """
import http.client, json, os, socket, sys
uid, gid, path, method, target, body = json.load(sys.stdin)
os.setgroups([]), os.setgid(gid), os.setuid(uid)
connection = http.client.HTTPConnection("localhost", timeout=60)
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
headers = {} if body is None else {"Content-Type": "application/json"}
connection.request(method, target, None if body is None else json.dumps(body), headers)
response = connection.getresponse()
content = response.read()
print(json.dumps([response.status, json.loads(content) if content else None]))
"""


@pytest.fixture
def world() -> Iterator[World]:
    yield from serve()


def serve(**changes: Any) -> Iterator[World]:
    """A server with a loop behind it; its socket is in a directory that every user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="mirage-api-"))
    folder.chmod(0o755)
    loop = HandLoop()
    desk = AgentQueue(lambda user, order_id, answer: None)
    service = ApiService(
        lambda: loop.status,
        loop.commands.put,
        loop.entries,
        desk,
        {"steering": "nice"},
        gate=Authenticator(frozenset({"bin"})),
        **changes,
    )
    server = ApiServer(service, folder / "api.sock")
    thread = threading.Thread(target=loop.run)
    thread.start()
    server.start()
    yield World(loop, desk, folder / "api.sock", service)
    server.stop()
    loop.ended.set()
    thread.join()
    shutil.rmtree(folder)


def definition(chain_id: str = "train-k3q9", **changes: Any) -> dict[str, Any]:
    """The body with which a client creates a chain."""
    batch = {"text": "#!/bin/sh\nsleep 1\n", "directory": "/home", "environment": [["HOME", "/home"]]}
    request = {"name": "train", "limit": 3_600, "batch": batch}
    return {"chain_id": chain_id, "name": "train", "request": request} | changes
