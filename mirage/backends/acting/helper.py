"""The far end of the sudo mode: one order on stdin, one answer on stdout, in a process of the user's own.

The first line of the output comes before anything is done: without it nothing was done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.executor import execute
from mirage.backends.acting.orders import Answer, Order, Verdict
from mirage.backends.acting.wire import BadOrder
from mirage.domain.bounds import LARGEST_ENVIRONMENT, LARGEST_SCRIPT

if TYPE_CHECKING:
    from typing import BinaryIO, TextIO

    from mirage.backends.acting.links_only import LinksOnly

GREETING = "mirage-act 1"
_LONGEST = 6 * (LARGEST_SCRIPT + 3 * LARGEST_ENVIRONMENT)
"""Bytes of an order: the largest script, environment, options and arguments, each byte escaped as ``\\udcff``."""


def serve(read: BinaryIO, write: TextIO, actuator: LinksOnly) -> None:
    """Greet, read an order, execute it with ``actuator`` as far as that permits, and write the answer."""
    write.write(GREETING + "\n")
    write.flush()
    answer = _obey(read.read(_LONGEST + 1), actuator)
    write.write(answer.to_text() + "\n")
    write.flush()


def _obey(text: bytes, actuator: LinksOnly) -> Answer:
    if len(text) > _LONGEST:
        return Answer(Verdict.NOT_PERMITTED, text=f"the request is longer than {_LONGEST} bytes")
    try:
        order = Order.from_text(text)
    except BadOrder as error:
        return Answer(Verdict.NOT_PERMITTED, text=f"the request cannot be read: {error}")
    return execute(order, actuator)
