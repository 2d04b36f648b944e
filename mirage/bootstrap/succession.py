"""A user's name that is another person's now: what was the former holder's is put away."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirage.domain.command import PutAway
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from mirage.bootstrap.service import Service

_LOG = logging.getLogger(__name__)


class PuttingAway:
    """Revokes tokens and sessions immediately; the leader's loop ends the chains in its next cycle."""

    def __init__(self) -> None:
        self._service: Service | None = None

    def serve(self, service: Service) -> None:
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
