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
from mirage.backends.acting.orders import Answer, Order, describe
from mirage.backends.acting.wire import BadOrder
from mirage.domain.errors import ClusterUnavailable, NotPermitted

if TYPE_CHECKING:
    from mirage.backends.acting.orders import Act

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
"""Of sudo; the helper gets sudo's own clean one."""


@dataclass(frozen=True, slots=True)
class Helper:
    """How the helper is started, and how long that may take, in seconds."""

    path: str
    """Absolute, as sudoers names it."""
    sudo: str = "/usr/bin/sudo"
    start: int = 15
    """A helper that gets to its order later than this leaves it."""
    answer: float = 90.0
    """A helper that has not answered by then has an unknown outcome."""


class SudoActuator(ByOrder):
    """An ``Actuator`` that runs the helper as each job's owner.

    ``NotPermitted`` where sudo, or the helper, refuses: nothing has happened then.
    """

    def __init__(self, helper: Helper) -> None:
        super().__init__(self._have_done)
        self._helper = helper

    def _have_done(self, owner: str, act: Act) -> Answer:
        _check_person(owner)
        order = Order.of(act, owner, int(time.time()) + self._helper.start)
        said, complaint = self._run(order)
        greeting, _, answer = said.partition("\n")
        trouble = _last_line(complaint) or "no word from the helper"
        if greeting != GREETING:
            raise NotPermitted(f"sudo cannot act for {owner}: {trouble}")
        try:
            return Answer.from_text(answer)
        except BadOrder:
            raise ClusterUnavailable(f"the helper was to {order.sentence}: {trouble}") from None

    def _run(self, order: Order) -> tuple[str, str]:
        """What the helper printed, on stdout and stderr."""
        helper = self._helper
        command = [helper.sudo, "-n", "-H", "-u", order.owner, "--", helper.path]
        try:
            process = subprocess.Popen(  # noqa: S603 (an argument vector from the configuration; no shell)
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise NotPermitted(f"{helper.sudo} cannot be run: {error}") from None
        try:
            return process.communicate(order.to_text(), helper.answer)
        except subprocess.TimeoutExpired:
            _abandon(process)
            text = f"the helper was to {describe(order.act)} and has not answered for {helper.answer:g} s"
            raise ClusterUnavailable(text) from None


def _check_person(owner: str) -> None:
    """``NotPermitted`` for whoever is not a known, ordinary user: sudo would read ``#0`` as root."""
    try:
        person = pwd.getpwnam(owner)
    except KeyError:
        raise NotPermitted(f"{owner!r} is not a user of this machine") from None
    if person.pw_uid == 0:
        raise NotPermitted("nothing is done in root's name")


def _abandon(process: subprocess.Popen[str]) -> None:
    """End it where that is allowed; sudo belongs to root, who may not be signalled by anybody."""
    with contextlib.suppress(PermissionError):
        process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]
