"""What a step leaves on the disk, and what that says of its ending.

Files about an attempt, beside the keeper's: ``began`` by each rank as it begins, with the number of ranks where
whoever started them does not wait for all of them itself; ``ended.RANK`` by each that has ended with 0;
``heard.NAME`` for each signal that came to it. The shell that writes them stands before the task's own command
and gets every signal that the whole step gets, whoever sends it; when it came is not known, since shells take note
of it only as the command has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.allocation.engine.steps import Ending

if TYPE_CHECKING:
    from pathlib import Path

_HEARD = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM")

# A trap that does something is not inherited: the task's own command has its signals as they would be without it.
LISTEN = f"""\
for name in {" ".join(_HEARD)}; do trap ": >\\"\\$MIRAGE_STEP.heard.$name\\"" "$name"; done
"""


def file_of(path: Path, ending: str) -> Path:
    """One of the files about an attempt; its name may have dots of its own."""
    return path.with_name(f"{path.name}.{ending}")


def read_ending(path: Path) -> Ending:
    """How a step whose keeper has ended did end; without a code where nothing tells.

    0 alone is not believed of srun: it also says so when a node takes its step along.
    """
    began = file_of(path, "began")
    code = _number(file_of(path, "exit"))
    ranks = _number(began) or 0
    if code == 0 and not all(file_of(path, f"ended.{rank}").exists() for rank in range(ranks)):
        code = None
    heard = tuple(name for name in _HEARD if file_of(path, f"heard.{name}").exists())
    return Ending(code, began.exists(), heard=heard)


def ended_at(path: Path) -> float | None:
    """When its keeper wrote down the exit code; ``None``: it did not."""
    try:
        return file_of(path, "exit").stat().st_mtime
    except OSError:
        return None


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
