"""A user's shell on a testbed: commands are typed as a document shows them."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from slurm_testbed import Testbed, TestbedFailed, identity

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0
PYTHONS = (sys.executable, "/usr/bin/python3")
"""Other users may not be able to run this very Python; the system's is good where it is the same version."""


class Shell:
    """A user's shell on a testbed, in an empty home with a ``mirage`` that the user can run."""

    def __init__(self, testbed: Testbed, home: Path) -> None:
        self.testbed = testbed
        self.user = testbed.users[0] if testbed.privileged else getpass.getuser()
        self.home = home
        self.environment = testbed.plain_environment(self.user) | {
            "HOME": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (home / "bin").mkdir()
        self.environment["PATH"] = f"{home / 'bin'}:{self.environment['PATH']}"
        self.processes: list[subprocess.Popen[str]] = []
        self.python = ""
        for path in (home, home / "bin"):
            shutil.chown(path, self.user)
        self._find_program()

    def type(self, command: str) -> str:
        """The output of the command; one that ends in ``&`` continues to run."""
        whole = command.replace("CHECKOUT", str(ROOT))
        background = whole.endswith("&") and not whole.endswith("&&")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {whole.removesuffix('&')}" if background else whole],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            cwd=self.home,
            **identity(self.user),
        )
        if background:
            self.processes.append(process)
            return ""
        said, _ = process.communicate(timeout=PATIENCE)
        if process.returncode:
            raise TestbedFailed(f"{command}: exit {process.returncode}: {said}")
        return said

    def says(self, command: str, words: str) -> bool:
        try:
            return words in self.type(command)
        except TestbedFailed:
            return False

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)
        limit = time.monotonic() + PATIENCE
        while daemons := self._daemons():
            assert time.monotonic() < limit
            for pid in daemons:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.2)

    def _daemons(self) -> list[int]:
        """Those that commands have started and left behind: they would write into the home while it is removed."""
        found = []
        home = f"HOME={self.home}".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (process / "cmdline").read_bytes().split(b"\0")
                if b"mirage" in command and home in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def _find_program(self) -> None:
        path = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
        for python in PYTHONS:
            file = self.home / "bin" / "mirage"
            file.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} -m mirage "$@"\n')
            file.chmod(0o755)
            if self.says("mirage --version", "mirage"):
                self.python = python
                return
        pytest.skip(f"{self.user} may run neither this Python nor a /usr/bin/python3 of the same version")
