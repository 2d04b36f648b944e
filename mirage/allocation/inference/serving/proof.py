"""How a worker and its gateway prove to each other that they belong together: workers may be on other nodes."""

from __future__ import annotations

import hashlib
import hmac
import secrets

GATE, SECRET, NAME = "MIRAGE_SERVING_GATE", "MIRAGE_SERVING_SECRET", "MIRAGE_SERVING_UNIT"
"""Variables that a worker finds: where its gateway listens (``HOST:PORT``), what proves it, who it is."""


def fresh() -> str:
    """A secret, or a challenge, that nobody can guess."""
    return secrets.token_hex(32)


def prove(secret: str, side: str, challenge: str) -> str:
    """The answer to a challenge (HMAC-SHA-256); ``side`` keeps one's own words from being sent back."""
    return hmac.new(secret.encode(), f"{side}:{challenge}".encode(), hashlib.sha256).hexdigest()


def proves(secret: str, side: str, challenge: str, proof: object) -> bool:
    """Whether an answer is right."""
    return isinstance(proof, str) and hmac.compare_digest(prove(secret, side, challenge), proof)
