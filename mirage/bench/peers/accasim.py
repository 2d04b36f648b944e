"""AccaSim (Galleguillos et al., Cluster Computing 2020), installed from PyPI into a separate environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from mirage.bench.peers.program import WORDS, Program
from mirage.domain.errors import MirageError
from mirage.ownprocess import own_python

REQUIREMENT = "accasim>=1.1,<1.2"
_SCRIPT = Path(__file__).with_name("accasim_easy.py")
_DISPATCHERS = {"AccaSim": "own", "AccaSim, a textbook's EASY in it": "textbook"}
_PATIENCE = 600


def accasim_programs() -> tuple[Program, ...]:
    """AccaSim's EASY, and the textbook's in its engine. Raises ``MirageError`` where it cannot be installed."""
    python = _environment(environment_folder())
    return tuple(
        Program(name, (str(python), "-P", str(_SCRIPT), dispatcher, *WORDS))
        for name, dispatcher in _DISPATCHERS.items()
    )


def environment_folder() -> Path:
    """Directory of its environment."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mirage" / "peers" / "accasim"


def _environment(folder: Path) -> Path:
    """The interpreter of an environment with AccaSim; creates the environment if it is missing."""
    python, installed = folder / "bin" / "python", folder / "installed"
    if not installed.is_file():
        _ask(own_python("-m", "venv", "--clear", str(folder)))
        _ask([str(python), "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT])
        installed.write_text(f"{REQUIREMENT}\n", encoding="utf-8")
    return python


def _ask(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)  # noqa: S603 - fixed programs
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MirageError(f"AccaSim cannot be installed: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise MirageError(f"AccaSim cannot be installed: {said[-1] if said else command}")
