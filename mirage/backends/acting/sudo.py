"""Acts through ``sudo`` and a helper that the administrator allows: one process of the user for each act."""

from __future__ import annotations

import contextlib
import pwd
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.backends.acting.by_order import ByOrder
from mirage.backends.acting.helper import GREETING
from mirage.backends.acting.orders import LONGEST_ANSWER, LONGEST_TEXT, Answer, Order, describe
from mirage.backends.acting.wire import BadOrder
from mirage.backends.dialogue import TooMuch, converse
from mirage.documenttext import decode_foreign
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.texts import one_line

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from mirage.backends.acting.helpergroups import HelperGroups
    from mirage.backends.acting.orders import Act
    from mirage.backends.acting.ownerturns import TurnLimits

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

    def ask(self, owner: str, act: Act) -> Answer:
        """Have it done in a process of ``owner``. Raises ``NotPermitted`` and ``ClusterUnavailable``."""
        check_person(owner)
        self._check_left(owner)
        order = Order.of(act, owner, int(time.time()) + self._helper.start)
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
            return Answer.from_text(answer, order.files)
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

    def _run(self, order: Order, command: list[str]) -> tuple[str, str]:
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
