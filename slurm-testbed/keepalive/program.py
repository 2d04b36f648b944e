"""How other users run the ``mirage`` of this virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

from onehost.people import person

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Program:
    """A command's first words, and what its environment must say."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def find_program(user: str) -> Program:
    """The interpreter that runs this, or, where ``user`` may not use it, the system's with our packages.

    Raises ``RuntimeError`` where there is neither.
    """
    path = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
    candidates = (
        Program((sys.executable, "-m", "mirage")),
        Program(("/usr/bin/python3", "-m", "mirage"), {"PYTHONPATH": path}),
    )
    for candidate in candidates:
        if _works(candidate, user):
            return candidate
    raise RuntimeError(f"{user} may run neither {sys.executable} nor a /usr/bin/python3 of the same version")


def _works(program: Program, user: str) -> bool:
    try:
        done = subprocess.run(
            [*program.argv, "--version"],
            env=program.environment,
            cwd="/",
            capture_output=True,
            check=False,
            **person(user).identity(),
        )
    except OSError:
        return False
    return done.returncode == 0
