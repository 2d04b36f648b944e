"""What a step leaves on the disk, and what that says of its ending.

Files about an attempt, next to the supervisor's: ``began`` by each rank as it begins, with the number of ranks
where
whoever started them does not wait for all of them itself; ``ended.RANK`` by each that has ended with 0;
``heard.NUMBER`` for each signal that came to it. The shell that writes them stands before the task's own command
and gets every signal that the whole step gets, whoever sends it; when it came is not known, since shells take note
of it only as the command has ended.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from mirage.allocation.engine.steps import Ending
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST_NUMBER = 64
"""Bytes of a file that holds one."""
_DEAF_TO = ("KILL", "STOP", "CHLD", "SEGV", "BUS", "FPE", "ILL", "TSTP", "TTIN", "TTOU")
"""Signals that a shell cannot hear, that tell it something else, or that a process brings upon itself."""
_HEARD = {int(each): name for each in signal.Signals if (name := each.name.removeprefix("SIG")) not in _DEAF_TO}

# A trap that does something is not inherited: the task's own command has its signals as they would be without it.
# The shell itself must survive them all, or what saves would end with it. Its variables begin with "_": one that
# the task's environment has already would be changed for the task as well.
LISTEN = f"""\
for _heard in {" ".join(map(str, _HEARD))}; do
  trap "( : >\\"\\$MIRAGE_STEP.heard.$_heard\\" ) 2>/dev/null" "$_heard"
done
"""

# What these files say decides whether a task has succeeded: whatever umask it has, others must not write to them.
GUARDED = "umask g-w,o-w"


def written(command: str, step: str) -> str:
    """Lines of a shell that write such a file; ``step``: the variable with the beginning of its name.

    While the file system is full it is retried: a result that cannot be written is no failure. In a subshell,
    for a shell ends where a redirection of one of its own commands fails.
    """
    return f"""\
while [ -d "${{{step}%/*}}" ] && ! ( {GUARDED}; {command} ) 2>/dev/null; do sleep 1; done
"""


# What is sent to all of a step comes to one process after another, and to this shell maybe after its command's
# end.
LINGER = """\
[ "$_code" -le 128 ] && [ -z "$MIRAGE_CHECKPOINT" ] || sleep 1
"""


def file_of(path: Path, ending: str) -> Path:
    """One of the files about an attempt; its name may have dots of its own."""
    return path.with_name(f"{path.name}.{ending}")


def read_ending(path: Path) -> Ending:
    """How a step whose supervisor has ended did end; without a code where nothing tells.

    0 alone is not estimated of srun: it also says so when a node takes its step along, even before it begins.
    """
    began = file_of(path, "began")
    code = _number(file_of(path, "exit"))
    ranks = _number(began) or 0
    if code == 0 and not (
        began.exists() and all(file_of(path, f"ended.{rank}").exists() for rank in range(ranks))
    ):
        code = None
    heard = tuple(name for number, name in _HEARD.items() if file_of(path, f"heard.{number}").exists())
    return Ending(code, began.exists(), heard=heard)


def began_at(path: Path) -> float | None:
    """When its last rank was about to run the task's command; ``None``: none was."""
    return _written_at(file_of(path, "began"))


def ended_at(path: Path) -> float | None:
    """When its supervisor wrote down the exit code; ``None``: it did not."""
    return _written_at(file_of(path, "exit"))


def _written_at(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _number(file: Path) -> int | None:
    try:
        return int(read_regular(file, _LARGEST_NUMBER, follow_links=False).decode("ascii"))
    except (OSError, ValueError):
        return None
