"""Wrappers around Slurm's commands that lose requests or output, and log every call."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMANDS = ("squeue", "sbatch", "sacct", "scancel")
KINDS = {
    "unreachable": COMMANDS,
    "lost": COMMANDS,
    "killed": COMMANDS,
    "slow": COMMANDS,
    "late": ("sbatch", "scancel"),
    "cut": ("squeue", "sacct"),
}
"""Kinds of failure of a call, and the commands that they apply to."""

_PROGRAM = """#!/bin/sh
# {kinds}
begun=$(date +%s.%N)
name={command}
case "$1" in --all) name=queue ;; esac
mishap=none
for each in {folder}/mishaps/{command}.*; do
    if mv "$each" "{folder}/taken/$$" 2>/dev/null; then mishap=$(cat "{folder}/taken/$$"); break; fi
done
case $mishap in
    unreachable) echo "{command}: error: Unable to contact slurm controller (connect failure)" >&2; status=1 ;;
    lost) {real} "$@" >/dev/null 2>&1
        echo "{command}: error: Socket timed out on send/recv operation" >&2; status=1 ;;
    killed) {real} "$@" >/dev/null 2>&1; status=137 ;;
    slow) sleep 3; {real} "$@"; status=$? ;;
    late) cat >"{folder}/taken/$$.in"
        (sleep 2; {real} "$@" <"{folder}/taken/$$.in") >/dev/null 2>&1 &
        echo "{command}: error: Socket timed out on send/recv operation" >&2; status=1 ;;
    cut) {real} "$@" >"{folder}/taken/$$.out"; status=$?
        printf %s "$(head -c $(($(wc -c <"{folder}/taken/$$.out") / 2)) "{folder}/taken/$$.out")" ;;
    *) {real} "$@"; status=$? ;;
esac
echo "$(date +%s.%N) $begun $name $mishap $status $PPID" >>{folder}/calls.log
[ $mishap = killed ] && kill -9 $$
exit $status
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a command."""

    at: float
    """The real time of its end."""
    begun: float
    name: str
    """The command; ``queue``: a query of the whole queue."""
    whole: bool
    """Whether Slurm's output arrived unchanged."""
    caller: int
    """PID of the caller."""


@dataclass
class Mishaps:
    """Wrapper programs in ``folder``/bin, found before Slurm's."""

    folder: Path
    _count: int = field(default=0)

    def install(self) -> None:
        """Create them; the calls of every user pass through."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("bin", "mishaps", "taken"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name).chmod(0o777)
        (self.folder / "calls.log").touch()
        (self.folder / "calls.log").chmod(0o666)
        for command in COMMANDS:
            program = self.path / command
            kinds = ", ".join(kind for kind, commands in KINDS.items() if command in commands)
            words = {"kinds": kinds, "command": command, "folder": self.folder, "real": shutil.which(command)}
            program.write_text(_PROGRAM.format(**words))
            program.chmod(0o755)

    @property
    def path(self) -> Path:
        """The directory to put first in PATH."""
        return self.folder / "bin"

    def befall(self, command: str, kind: str) -> None:
        """Make the next call of ``command`` fail in this way."""
        self._count += 1
        place = self.folder / "mishaps" / f"{command}.{self._count:06}"
        waiting = place.with_name(f".{place.name}")
        waiting.write_text(kind)
        waiting.chmod(0o666)
        waiting.rename(place)

    def clear(self) -> None:
        """Discard failures that no call has met yet."""
        for place in (self.folder / "mishaps").iterdir():
            place.unlink(missing_ok=True)

    def calls(self) -> Iterator[Call]:
        """All calls until now, in order of their ends."""
        for line in (self.folder / "calls.log").read_text().splitlines():
            at, begun, name, mishap, status, caller = line.split()
            yield Call(float(at), float(begun), name, status == "0" and mishap in ("none", "slow"), int(caller))
