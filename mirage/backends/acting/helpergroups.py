"""Control groups for helpers: what a helper starts is bounded, and ends with it.

A helper is a process of its user among the daemon's processes: the programs that it starts (``sbatch``) take the
user's environment, so the user decides what runs in them. Where systemd delegates the unit's control group
(``Delegate=``, cgroup v2), each helper gets a separate group below it, with bounds on memory and processes, and
is killed with all that it has started. Without delegation nothing of this holds, and the daemon logs that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BOUNDS = {
    "memory.max": "536870912",
    "memory.swap.max": "0",
    "memory.oom.group": "1",
    "pids.max": "128",
    "cpu.weight": "10",
}
"""Of one helper and all that it starts, as far as the controllers are there."""
_CONTROLLERS = ("memory", "pids", "cpu")
_OWN, _UNIT = "daemon", ".service"
_ENTER = 'echo 0 >"$1" || exit 125; shift; exec "$@"'
_PAUSES = (0.0, 0.05, 0.2, 0.5)
"""Seconds between attempts to remove a group whose processes are being killed."""


def own_group(root: Path = Path("/sys/fs/cgroup"), cgroup: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the directory of this process's group in the unified hierarchy; ``None`` without that hierarchy."""
    with contextlib.suppress(OSError, ValueError):
        for line in cgroup.read_text(encoding="utf-8").splitlines():
            number, _, path = line.split(":", 2)
            if number == "0":
                groups = [place / path.lstrip("/") for place in (root, root / "unified")]
                return next((group for group in groups if (group / "cgroup.procs").exists()), None)
    return None


@dataclass(slots=True)
class HelperGroups:
    """The groups of one daemon, below ``base``."""

    base: Path
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _left: list[Path] = field(default_factory=list)
    """Groups that could not be removed in time: their processes were still ending."""

    @classmethod
    def delegated(cls, group: Path | None) -> Self | None:
        """Return groups below ``group``, a unit's, where this process may make them; else ``None``.

        This process first moves into a separate group: a group that holds processes cannot have controllers for
        the groups below it (cgroups(7)).
        """
        base = group.parent if group is not None and group.name == _OWN else group
        if base is None or base.suffix != _UNIT or not os.access(base, os.W_OK):
            return None
        try:
            (base / _OWN).mkdir(exist_ok=True)
            (base / _OWN / "cgroup.procs").write_text("0", encoding="ascii")
        except OSError:
            return None
        for name in _CONTROLLERS:
            with contextlib.suppress(OSError):
                (base / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")
        return cls(base)

    @contextlib.contextmanager
    def around(self, command: Sequence[str]) -> Iterator[list[str]]:
        """Yield the command line that runs ``command`` in a new group; in the end all processes there are killed.

        Raises ``OSError`` where no group can be made.
        """
        self._left = [group for group in self._left if not _ended(group)]
        group = self.base / f"helper-{os.getpid()}-{next(self._numbers)}"
        group.mkdir()
        try:
            for name, bound in BOUNDS.items():
                with contextlib.suppress(OSError):  # the controller is not there
                    (group / name).write_text(bound, encoding="ascii")
            yield ["/bin/sh", "-c", _ENTER, "sh", str(group / "cgroup.procs"), *command]
        finally:
            if not any(_ended(group, pause) for pause in _PAUSES):
                self._left.append(group)


def _ended(group: Path, pause: float = 0.0) -> bool:
    """Wait ``pause`` seconds, then kill what is left in a group and remove it; whether that succeeded."""
    time.sleep(pause)
    with contextlib.suppress(OSError):
        (group / "cgroup.kill").write_text("1", encoding="ascii")
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
