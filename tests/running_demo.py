"""A running demo and its output: for tests that use it as a newcomer does."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mirage.client import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PATIENCE = 300.0
"""Seconds after which a test fails: it may have to compile the simulator first. Nothing is asserted of them."""
MIRAGE = [sys.executable, "-m", "mirage"]
DEMO = ["demo", "--rate", "3600"]
COMMAND = [*MIRAGE, *DEMO]
NEWCOMER = {"PATH": "/usr/bin:/bin"}


class Demo:
    """A running demo, and its output so far."""

    def __init__(self, folder: Path, program: Sequence[str] = MIRAGE) -> None:
        self.folder = folder
        self.program = program
        # Variables that would lead an ordinary daemon elsewhere must not reach this one.
        misleading = {"MIRAGE_CLUSTER__BACKEND": "rest", "MIRAGE_SOCKET": "/nowhere", "TMPDIR": str(folder)}
        with (folder / "said").open("w") as said:
            self.process = subprocess.Popen(
                [*program, *DEMO],
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=os.environ | misleading | NEWCOMER | {"PYTHONUNBUFFERED": "1"},
            )
        self.greeting = self._read_greeting()
        self.link = urlsplit(self._found(r"Web UI:\s+(http://\S+)"))
        self.socket = self._found(r"MIRAGE_SOCKET=(\S+)")

    def end(self) -> None:
        """Kill it, unless it has ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read_greeting(self) -> str:
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if "Ctrl-C" in line:
                return said
        raise AssertionError(f"it ended without a greeting: {(self.folder / 'said').read_text()}")

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, self.greeting)
        assert found, self.greeting
        return found[1]

    def get(self, target: str, cookie: str = "") -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.link.netloc, timeout=60)
        connection.request("GET", target, headers={"Cookie": cookie, "Accept": "text/html"})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, dict(response.getheaders()), body

    def shell(self, command: str) -> str:
        """The output of ``command`` in a shell that has the settings that this demo printed."""
        [line] = [line for line in self.greeting.splitlines() if "export" in line]
        script = f"{line[line.index('export') :]}; {command}"
        return subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, check=True, env=NEWCOMER
        ).stdout

    def mirage(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self.program, *arguments],
            env=os.environ | {"MIRAGE_SOCKET": self.socket},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._holds(holds):
            assert self.process.poll() is None, (self.folder / "said").read_text()
            assert time.monotonic() < deadline, f"{what} never came"
            time.sleep(0.1)

    @staticmethod
    def _holds(holds: Callable[[], bool]) -> bool:
        try:
            return holds()
        except (OSError, ClientError):
            return False
