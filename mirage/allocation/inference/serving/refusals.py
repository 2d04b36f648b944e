"""Errors that a client receives instead of an answer of a model."""

from __future__ import annotations

import json
import math

from mirage.domain.errors import MirageError


class Refusal(MirageError):
    """``status``: HTTP status; ``retry_after``: seconds after which a retry may succeed."""

    def __init__(self, status: int, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}

    @property
    def body(self) -> bytes:
        """Body of the answer, in JSON."""
        return json.dumps({"error": str(self)}).encode()


class GivenUp(Refusal):
    """An accepted request ends without an answer."""
