"""The running testbed, as used by the scenario."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from onehost.people import person

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Runs programs as the testbed's users."""

    conf: str
    clock: str
    rate: float
    fast: Mapping[str, str]
    """Environment of programs on Slurm's clock."""
    plain: Mapping[str, str]
    """Environment of programs on the real clock."""

    @classmethod
    def of(cls, directory: Path) -> Surroundings:
        """The testbed that runs in ``directory``. Raises ``OSError`` if no testbed runs."""
        state = json.loads((directory / "testbed.json").read_text())
        return cls(
            state["conf"], state["clock"] or "", state["rate"], state["environment"], state["plain_environment"]
        )

    def now(self) -> float:
        """Slurm's time."""
        if not self.clock:
            return time.time()
        clock = json.loads(Path(self.clock).read_text())
        return float(clock["t0"] + (time.time() - clock["t0"]) * clock["rate"])

    def environment(self, user: str, *, fast: bool = False) -> dict[str, str]:
        """The environment of a fresh login."""
        home = str(person(user).home)
        base = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": os.environ["PATH"]}
        return base | {"LANG": "C.UTF-8"} | dict(self.fast if fast else self.plain)

    def run(
        self,
        user: str,
        argv: Sequence[str],
        text: str | None = None,
        *,
        fast: bool = False,
        more: Mapping[str, str] = NOTHING,
    ) -> str:
        """Output of the program. Raises ``subprocess.SubprocessError`` with its ``stderr``."""
        environment = self.environment(user, fast=fast) | dict(more)
        return subprocess.run(
            list(argv),
            input=text,
            env=environment,
            cwd=environment["HOME"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            **person(user).identity(),
        ).stdout

    def start(
        self, user: str, argv: Sequence[str], log: Path, more: Mapping[str, str] = NOTHING
    ) -> subprocess.Popen[bytes]:
        """Start a program in the background, with its output in ``log``."""
        environment = self.environment(user) | dict(more)
        with log.open("ab") as output:
            return subprocess.Popen(
                list(argv),
                env=environment,
                cwd=environment["HOME"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                **person(user).identity(),
            )
