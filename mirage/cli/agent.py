"""``mirage agent``: runs a daemon's requests to submit and cancel links in the name of the agent's user."""

from __future__ import annotations

import json
import os
import pwd
import signal
import time
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.client.errors import ClientError, DaemonUnreachable, Refusal, Unanswered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.backends.agent_requests import AgentRequest, AgentResponse
    from mirage.client.address import Address
    from mirage.client.client import Client

Once = Annotated[bool, typer.Option("--once", help="Process the waiting requests and exit.")]
Socket = Annotated[str, typer.Option("--socket", metavar="FILE", help="Socket of the daemon.")]

_WAIT = 30
_SPARE = 30.0
"""Seconds that a reply may take beyond the requested wait."""
_DELIVER = 60.0
"""Seconds for which to retry delivering a result; by default the daemon waits no longer."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts; doubles each time."""
_NOT_PERMITTED = (401, 403)


def agent_command(once: Once = False, socket: Socket = "") -> None:
    """Run an agent that submits and cancels your links in your name, as the daemon requests.

    Keep it running on the daemon's machine, also after you log out: links do not start it.
    """
    from mirage.backends.execution import CommandRunner
    from mirage.backends.user_side import execute, own_links

    user = pwd.getpwuid(os.getuid()).pw_name
    client, ending = connect(socket), _Ending()
    environment = os.environ | {"MIRAGE_SOCKET": str(client.transport.address)}
    actuator = own_links(CommandRunner(os.environ), user, environment)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, ending.told)
    with exit_codes():
        _serve(client, lambda order: execute(order, actuator), once=once, ending=ending)


class _Ending:
    """Delays the exit on a signal until the agent has replied to its current request.

    Without a reply the daemon must wait until the request expires.
    """

    def __init__(self) -> None:
        self.busy = self.wanted = False

    def told(self, number: int, frame: object = None) -> None:
        """Handle a signal; the second one always ends the agent. Raises ``SystemExit``."""
        del frame
        if self.wanted or not self.busy:
            raise SystemExit(0 if number == signal.SIGTERM else 128 + number)
        self.wanted = True
        show("exiting after the current request; a second signal exits immediately", err=True)

    @contextmanager
    def order(self) -> Iterator[None]:
        """Mark the agent as busy. Raises ``SystemExit`` at the end if a signal arrived meanwhile."""
        self.busy = True
        try:
            yield
        finally:
            self.busy = False
        if self.wanted:
            raise SystemExit(0)


class _Contact:
    """Connection to the daemon: reports each failure once and pauses longer after each attempt."""

    def __init__(self, address: Address, *, once: bool) -> None:
        self._address = address
        self._once = once
        self._heard = self._acting = False
        self._reported = ""
        self._pause = _FIRST_PAUSE

    def answered(self) -> None:
        """Record a valid reply of the daemon."""
        if not self._acting:
            show(f"connected to the daemon on {self._address}")
        elif self._reported:
            show(f"the daemon on {self._address} replies again")
        self._heard = self._acting = True
        self._reported, self._pause = "", _FIRST_PAUSE

    def check(self, error: ClientError) -> None:
        """Raise ``error`` if another attempt is useless.

        That is: the daemon denies access or, before its first reply, there is no daemon. A daemon that disappears
        before it replies may be starting.
        """
        permanent = error.permanent if isinstance(error, Refusal) else not isinstance(error, Unanswered)
        denied = isinstance(error, Refusal) and error.status in _NOT_PERMITTED
        if self._once or denied or (permanent and not self._heard):
            raise error

    def failed(self, error: ClientError) -> None:
        """Report it and pause. Raises ``error`` as ``check`` does."""
        self.check(error)
        self._heard = True
        if str(error) != self._reported:
            show(error, err=True)
        self._reported = str(error)
        self.pause()

    def pause(self) -> None:
        """Wait before the next attempt, longer each time."""
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _serve(
    client: Client,
    carry_out: Callable[[AgentRequest], AgentResponse],
    *,
    once: bool,
    ending: _Ending | None = None,
) -> None:
    """Raises ``ClientError`` if the daemon has never replied or denies access.

    All other errors may be temporary: a restarted, standby or busy daemon, or a failing proxy.
    """
    contact, ending = _Contact(client.transport.address, once=once), ending or _Ending()
    while True:
        begun = time.monotonic()
        try:
            order = _fetch(client, 0 if once else _WAIT)
        except ClientError as error:
            contact.failed(error)
            continue
        if order is not None and order.adopt is not None and not once:
            contact.answered()
            _begin_aside(client.transport.address, order, carry_out)
        elif order is not None:
            contact.answered()
            with ending.order():
                _answer(client, order, carry_out(order), contact)
        elif once:
            return
        else:
            contact.answered()
            if time.monotonic() - begun < _FIRST_PAUSE:  # a stopping daemon replies without waiting
                contact.pause()


def _begin_aside(
    address: Address, order: AgentRequest, carry_out: Callable[[AgentRequest], AgentResponse]
) -> None:
    """Perform a request next to others: an adoption takes a cycle of the daemon, in which it submits links."""

    def perform() -> None:
        client = connect(str(address))
        with suppress(ClientError):  # the job's comment shows the result
            _answer(client, order, carry_out(order), _Contact(address, once=True))

    Thread(target=perform, daemon=True).start()


def _fetch(client: Client, wait: int) -> AgentRequest | None:
    """Return the next request, waiting ``wait`` seconds for one; an invalid one is rejected."""
    from mirage.backends.agent_requests import AgentRequest, AgentResponse, BadOrder, Verdict

    document = client.transport.ask("GET", f"/agent/order?wait={wait}", timeout=wait + _SPARE)
    if document is None:
        return None
    try:
        return AgentRequest.from_text(json.dumps(document))
    except BadOrder as error:
        problem = f"invalid request: {error}; check that daemon and agent have the same version"
        if isinstance(document, dict) and isinstance(document.get("order_id"), str):
            _post(client, document["order_id"], AgentResponse(Verdict.NOT_PERMITTED, text=problem))
        raise DaemonUnreachable(f"{client.transport.address}: {problem}") from None


def _answer(client: Client, order: AgentRequest, answer: AgentResponse, contact: _Contact) -> None:
    """Deliver a result; one that the daemon rejects is dropped, because the job's tag shows the result."""
    job = f" (job {answer.job_id})" if answer.job_id else ""
    said = f": {answer.text}" if answer.text else ""
    show(f"{order.sentence}: {answer.verdict.name.lower().replace('_', ' ')}{job}{said}")
    end = time.monotonic() + _DELIVER
    while True:
        try:
            _post(client, order.order_id, answer)
        except ClientError as error:
            contact.check(error)
            if time.monotonic() < end and not (isinstance(error, Refusal) and error.permanent):
                contact.failed(error)
                continue
            show(f"the result of request {order.order_id} is dropped: {error}", err=True)
        return


def _post(client: Client, order_id: str, answer: AgentResponse) -> None:
    target = f"/agent/orders/{quote(order_id, safe='')}/answer"
    client.transport.ask("POST", target, json.loads(answer.to_text()))
