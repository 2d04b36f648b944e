"""Whether the database is still about the same cluster and the same people.

Of a user's name that is another person's now, what was the former holder's is put away.
"""

from __future__ import annotations

import logging
from threading import Lock
from typing import TYPE_CHECKING

from mirage.domain.command import PutAway
from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from mirage.bootstrap.service import DaemonService


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


_LOG = logging.getLogger(__name__)


class PuttingAway:
    """Revokes tokens and sessions immediately; the leader's loop ends the chains in its next cycle."""

    def __init__(self) -> None:
        self._service: DaemonService | None = None

    def serve(self, service: DaemonService) -> None:
        """Use this service for all later calls; calls before fail."""
        self._service = service

    def __call__(self, name: str, uid: int, done: Callable[[], None], failed: Callable[[], None]) -> None:
        """See ``mirage.api.access.holders.Succession``."""
        service = self._service
        if service is None or service.tenure.impediment():
            failed()
            return

        def answered(answer: Future[str]) -> None:
            try:
                answer.result()
                done()
            except Exception:  # the next use of the name is another try
                _LOG.exception("event=former_user_not_removed uid=%d user=%r", uid, name)
                failed()

        try:
            if service.interface is not None:
                gate = service.interface.service.gate
                gate.sessions.close_all(name)
                gate.tokens.revoke_all(name)
        except MirageError as error:
            _LOG.warning("event=tokens_not_revoked user=%r error=%r", name, str(error))
            failed()
            return
        service.commands.put(PutAway(name, uid)).add_done_callback(answered)
