"""Acts through ``sudo`` and a helper that the administrator allows: one process of the user for each act.

A helper is a process of its user among the daemon's processes: the programs that it starts (``sbatch``) take the
user's environment, so the user decides what runs in them. Where systemd delegates the unit's control group
(``Delegate=``, cgroup v2), each helper gets a separate group below it, with bounds on memory and processes, and
is killed with all that it has started. Without delegation nothing of this holds, and the daemon logs that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mirage.backends.agent_requests import (
    LONGEST_ANSWER,
    LONGEST_TEXT,
    AgentRequest,
    AgentResponse,
    BadOrder,
    describe,
)
from mirage.backends.execution import TooMuch, converse
from mirage.backends.owner_turns import ByOrder
from mirage.backends.user_side import GREETING
from mirage.documentreading import decode_foreign
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from mirage.backends.agent_requests import Act
    from mirage.backends.owner_turns import TurnLimits

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


_GRACE_S = 1.0
_BOUNDED = ("/usr/bin/prlimit", "--nproc=1024:1024", "--core=0:0", "--")
"""Limits on what a helper starts: its user may stop or trace it, and it is a process of the daemon."""
_MOST_LEFT = 2
"""Helpers of one user that timed out and have not ended."""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
"""Of sudo; the helper gets sudo's own clean one."""


@dataclass(frozen=True, slots=True)
class Helper:
    """Command line of the helper, and its timeouts in seconds."""

    path: str
    """Absolute, as sudoers names it."""
    sudo: str = "/usr/bin/sudo"
    start: int = 15
    """A helper that gets to its order later than this leaves it."""
    answer: float = 90.0
    """A helper that has not answered by then has an unknown outcome."""


class SudoActuator(ByOrder):
    """An ``Actuator`` that runs the helper as each job's owner.

    ``NotPermitted`` where sudo, or the helper, rejects: nothing has happened then.
    """

    def __init__(
        self, helper: Helper, groups: HelperGroups | None = None, limits: TurnLimits | None = None
    ) -> None:
        """``groups``: where each helper ends with all that it started; ``None``: the system delegates none."""
        super().__init__(self.ask, limits=limits)
        self._helper = helper
        self._groups = groups
        self._left: dict[str, list[subprocess.Popen[bytes]]] = {}

    def ask(self, owner: str, act: Act) -> AgentResponse:
        """Have it done in a process of ``owner``. Raises ``NotPermitted`` and ``ClusterUnavailable``."""
        check_person(owner)
        self._check_left(owner)
        order = AgentRequest.of(act, owner, int(time.time()) + self._helper.start)
        try:
            with self._around(order.owner) as command:
                said, complaint = self._run(order, command)
        except OSError as error:
            raise NotPermitted(f"no control group for a helper of {owner}: {error}") from None
        greeting, _, answer = said.partition("\n")
        trouble = _last_line(complaint) or "no word from the helper"
        if greeting != GREETING:
            raise NotPermitted(f"sudo cannot act for {owner}: {trouble}")
        try:
            return AgentResponse.from_text(answer, order.files)
        except BadOrder:
            raise ClusterUnavailable(f"the helper was asked to {order.sentence}: {trouble}") from None

    def _check_left(self, owner: str) -> None:
        """Raise ``NotPermitted`` while the owner prevents timed-out helpers from ending."""
        left = [process for process in self._left.pop(owner, []) if process.poll() is None]
        if left:
            self._left[owner] = left
        if len(left) >= _MOST_LEFT:
            ids = ", ".join(str(process.pid) for process in left)
            raise NotPermitted(f"earlier helpers of {owner} have not ended; end these processes of sudo: {ids}")

    def _around(self, owner: str) -> AbstractContextManager[list[str]]:
        helper = self._helper
        command = [*_BOUNDED, helper.sudo, "-n", "-H", "-u", owner, "--", helper.path]
        return self._groups.around(command) if self._groups else contextlib.nullcontext(command)

    def _run(self, order: AgentRequest, command: list[str]) -> tuple[str, str]:
        """Run the helper; returns its stdout and stderr."""
        helper = self._helper
        try:
            process = subprocess.Popen(  # noqa: S603 (an argument vector from the configuration; no shell)
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise NotPermitted(f"{_BOUNDED[0]} cannot be run: {error}") from None
        try:
            said, complaint = converse(process, order.to_text().encode(), helper.answer, LONGEST_ANSWER)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        except TimeoutError:
            text = f"the helper was asked to {describe(order.act)} and has not answered for {helper.answer:g} s"
            raise ClusterUnavailable(text) from None
        except TooMuch:
            text = f"the helper was asked to {describe(order.act)} and printed more than {LONGEST_ANSWER:,} bytes"
            raise ClusterUnavailable(text) from None
        finally:
            if not _abandon(process):
                self._left.setdefault(order.owner, []).append(process)
        return decode_foreign(said), decode_foreign(complaint)


def check_person(owner: str) -> None:
    """Raise ``NotPermitted`` for an owner who is no known, ordinary user: sudo would read ``#0`` as root."""
    try:
        person = pwd.getpwnam(owner)
    except KeyError:
        raise NotPermitted(f"{owner!r} is not a user of this machine") from None
    if person.pw_uid == 0:
        raise NotPermitted("Mirage does not act as root")


def _abandon(process: subprocess.Popen[bytes]) -> bool:
    """Close its pipes; end it where that is allowed: sudo may be root's. Whether it has ended."""
    with contextlib.suppress(PermissionError):
        process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)
    return process.returncode is not None


def _last_line(text: str) -> str:
    return one_line(text.strip().rpartition("\n")[2], LONGEST_TEXT)
