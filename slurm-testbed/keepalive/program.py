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
    """The first words of a command, and the variables that it needs."""

    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def find_program(user: str) -> Program:
    """This interpreter, or the system's with our packages where ``user`` may not run this one.

    Raises ``RuntimeError`` where both fail.
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
