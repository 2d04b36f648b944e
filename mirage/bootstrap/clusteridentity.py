"""Whether the cluster behind the backend is the one that the database is about."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


class ClusterIdentity:
    """Compares the two names once, and stores the first one that is known. Any thread."""

    def __init__(
        self, ask: Callable[[], str], settle: Callable[[str], str], disqualify: Callable[[str], None]
    ) -> None:
        """``ask``: the cluster's name; ``settle``: stores it if none is stored, and returns what is stored.

        ``disqualify`` gets the reason why this daemon must not lead.
        """
        self._ask = ask
        self._settle = settle
        self._disqualify = disqualify
        self._lock = Lock()
        self._checked = False

    def check(self) -> None:
        """Raise ``ConfigError`` where it is another cluster; nothing may be asked of it or stored then.

        Raises ``ClusterUnavailable`` and ``StoreUnavailable`` where that cannot be determined yet.
        """
        with self._lock:
            if self._checked:
                return
            here = self._ask()
            stored = self._settle(here) if here else here
            if stored.casefold() != here.casefold():
                problem = other_cluster(stored, here)
                self._disqualify(problem)
                raise ConfigError("store.url", problem)
            self._checked = True


def other_cluster(stored: str, here: str) -> str:
    """The problem, and its fix."""
    return (
        f"the database belongs to cluster '{stored}', but the cluster here is '{here}'; set the database of "
        f"'{here}', or, if the cluster was renamed, stop the daemon and run: mirage db cluster {here}"
    )
