"""A temporary testbed on the real clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROGRAM = Path(__file__).resolve().parents[1] / "testbed"


class Failed(Exception):
    """The run cannot continue; the text says why."""


@dataclass(frozen=True, slots=True)
class Bed:
    """A running testbed."""

    environment: Mapping[str, str]

    @classmethod
    @contextmanager
    def started(cls, directory: Path, base_port: int) -> Iterator[Bed]:
        """Start a testbed; it ends with the block, or with this process."""
        named = ["--dir", str(directory)]
        _testbed("start", *named, "--speed=1", "--nodes=npu=2", f"--base-port={base_port}")
        watching = [sys.executable, str(PROGRAM), "stop", "--wipe", "--when-gone", str(os.getpid()), *named]
        watcher = subprocess.Popen(watching, start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            yield cls(json.loads((directory / "testbed.json").read_text())["plain_environment"])
        finally:
            watcher.terminate()
            watcher.wait()
            _testbed("wipe", *named)

    def run(self, argv: Sequence[str], text: str | None = None) -> str:
        """Run one of Slurm's commands as the current user. Raises ``Failed``."""
        plain = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        done = subprocess.run(
            argv, input=text, env=plain | dict(self.environment), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Failed(f"{argv[0]}: {done.stderr.strip()}")
        return done.stdout


def _testbed(*words: str) -> None:
    done = subprocess.run([sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip())
