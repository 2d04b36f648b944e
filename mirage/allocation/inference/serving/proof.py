"""How those who share a secret prove it to each other: a worker and its gateway, a front and a gateway.

Anybody may listen where a gateway has listened: keys and requests go to none that has not proved itself. A gateway
proves its own address too, so that nobody can have it answer for another one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

PLACE, CHALLENGE = "/proof", "x-mirage-challenge"
"""Where a gateway proves to who reads its state directory that it is the one named there, and the header."""
LONGEST_CHALLENGE = 128
GATE, SECRET, NAME = "MIRAGE_SERVING_GATE", "MIRAGE_SERVING_SECRET", "MIRAGE_SERVING_UNIT"
"""Variables that a worker finds: where its gateway listens (``HOST:PORT``), what proves it, who it is."""


def fresh() -> str:
    """A secret, or a challenge, that nobody can guess."""
    return secrets.token_hex(32)


def prove(secret: str, side: str, challenge: str) -> str:
    """The answer to a challenge (HMAC-SHA-256); ``side`` keeps one's own words from being sent back."""
    return hmac.new(secret.encode(), f"{side}:{challenge}".encode(), hashlib.sha256).hexdigest()


def gateway_at(url: str) -> str:
    """The side of a gateway that listens there."""
    return f"gateway at {url}"


def proves(secret: str, side: str, challenge: str, proof: object) -> bool:
    """Whether an answer is right."""
    return isinstance(proof, str) and hmac.compare_digest(prove(secret, side, challenge), proof)
