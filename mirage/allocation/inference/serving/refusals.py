"""Why a request gets no answer from a model, as its sender is told."""

from __future__ import annotations

import json
import math

from mirage.domain.errors import MirageError


class Refusal(MirageError):
    """``status`` is HTTP's; ``retry_after``, in seconds, says when asking again may help."""

    def __init__(self, status: int, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Those that go with it."""
        return {} if self.retry_after is None else {"Retry-After": str(max(1, math.ceil(self.retry_after)))}

    @property
    def body(self) -> bytes:
        """What is answered, in JSON."""
        return json.dumps({"error": str(self)}).encode()


class GivenUp(Refusal):
    """The request was let in, and yet there is no answer."""
