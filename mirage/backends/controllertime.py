"""The time by the clock of slurmctld."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling, ClusterUnavailable, NotPermitted

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.backends.rest import Rest
    from mirage.domain.job import Seconds

_SDIAG = re.compile(r"^sdiag output at .*\(([0-9]{1,18})\)", re.MULTILINE)


def read_controller_time(text: str) -> Seconds:
    """The time that ``sdiag`` shows, epoch seconds. Raises ``BadSpelling``."""
    match = _SDIAG.search(text)
    if match is None:
        raise BadSpelling(text, "expected the answer of sdiag")
    return int(match[1])


def cli_controller_time(commands: Commands) -> Seconds:
    """By ``sdiag``. Raises ``ClusterUnavailable``."""
    answer = commands.run(("sdiag",))
    if answer.status:
        raise ClusterUnavailable(f"sdiag: exit {answer.status}: {answer.said[:300]}")
    try:
        return read_controller_time(answer.out)
    except BadSpelling as error:
        raise ClusterUnavailable(f"sdiag: {error}") from None


def rest_controller_time(rest: Rest) -> Seconds:
    """By slurmrestd's ``diag``. Raises ``ClusterUnavailable``."""
    try:
        found: object = rest.ask("GET", "diag").body
    except NotPermitted as error:
        raise ClusterUnavailable(str(error)) from None
    for key in ("statistics", "req_time", "number"):  # newer versions say {"set": true, "number": 1}
        found = found.get(key) if isinstance(found, dict) else found
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 10**18:
        raise ClusterUnavailable("slurmrestd: its diagnostics have no time of the controller")
    return found
