"""Daemons as separate processes, for tests: start, listen, signal."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fakes import HOUR, chain

from mirage.domain.chain import ChainRecord, DoneCondition
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0
"""Seconds after which a test fails; nothing is asserted about how long things take."""


def wait_until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.05)


class DaemonFolder:
    """Configuration, state and scripted cluster of daemons that follow one another."""

    def __init__(self, folder: Path, rate: int = 3_600) -> None:
        self.folder = folder
        self.config = folder / "mirage.toml"
        self.world = folder / "world"
        self.world.mkdir()
        clock = folder / "clock.json"
        clock.write_text(f'{{"t0": {time.time()}, "rate": {rate}}}')
        self.basics = f"""
[service]
state = "{folder}/state"
runtime = "{folder}/run"
[cluster]
clock = "{clock}"
"""
        self.configure('[loop]\npredictor = "reactive"\n')

    def configure(self, text: str) -> None:
        self.config.write_text(self.basics + text)

    def store(self):
        (self.folder / "state").mkdir(mode=0o700, exist_ok=True)
        return open_store(f"sqlite:///{self.folder}/state/mirage.db")

    def add_chain(self, name: str = "svc", links: int = 1_000, limit: int = 2 * HOUR) -> None:
        store = self.store()
        store.chains.save(ChainRecord(chain(limit, DoneCondition(exit_code=None, links=links), name=name)))
        store.close()

    def record(self) -> ChainRecord:
        store = self.store()
        (record,) = store.chains.load()
        store.close()
        return record

    def submissions(self) -> list[str]:
        file = self.world / "cluster"
        return [request.tag for request in pickle.loads(file.read_bytes())[1]] if file.exists() else []

    def ask(self, name: str) -> None:
        (self.world / name).touch()

    def take_back(self, name: str) -> None:
        (self.world / name).unlink()

    def start(self, *arguments: str, **environment: str) -> Daemon:
        return Daemon(self, *arguments, **environment)


class Daemon:
    """One process; ended when the block ends."""

    def __init__(self, of: DaemonFolder, *arguments: str, **environment: str) -> None:
        path = f"{HERE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "fake_daemon.py"), str(of.config), str(of.world), *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "MIRAGE_LOOP__SETTLE": "1s"} | environment,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()

    def said(self, text: str) -> bool:
        return any(text in line for line in tuple(self.lines))

    def wait_for(self, text: str, times: int = 1) -> None:
        def enough() -> bool:
            lines = tuple(self.lines)
            assert self.process.poll() is None or sum(text in line for line in lines) >= times, "".join(lines)
            return sum(text in line for line in lines) >= times

        wait_until(enough, repr(text))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return status

    @property
    def text(self) -> str:
        return "".join(self.lines)


class Manager:
    """The receiver of the daemon's notifications to systemd."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self.heard: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while message := self._socket.recv(4_096):
            if message == b"end":
                return
            self.heard.append(message.decode())

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *error: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(b"end", self.path)
        self._thread.join()
        self._socket.close()

    def count(self, start: str) -> int:
        return sum(message.startswith(start) for message in tuple(self.heard))
