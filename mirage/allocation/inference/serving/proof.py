"""Mutual authentication by a shared secret: of a worker and its gateway, of a reverse proxy and a gateway.

Any process may listen where a gateway has listened, so keys and requests go only to a gateway that has
authenticated. The proof includes the gateway's address, so that another process cannot relay it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

PLACE, CHALLENGE = "/proof", "x-mirage-challenge"
"""Path and header by which a gateway proves that it is the one named in the state directory."""
LONGEST_CHALLENGE = 128
GATE, SECRET, NAME = "MIRAGE_SERVING_GATE", "MIRAGE_SERVING_SECRET", "MIRAGE_SERVING_UNIT"
"""Environment of a worker: the gateway's address (``HOST:PORT``), the shared secret and the worker's name."""


def fresh() -> str:
    """A random secret or challenge."""
    return secrets.token_hex(32)


def prove(secret: str, side: str, challenge: str) -> str:
    """The answer to a challenge (HMAC-SHA-256); ``side`` prevents an answer from being reflected."""
    return hmac.new(secret.encode(), f"{side}:{challenge}".encode(), hashlib.sha256).hexdigest()


def gateway_at(url: str) -> str:
    """Name of the side of a gateway that listens there."""
    return f"gateway at {url}"


def proves(secret: str, side: str, challenge: str, proof: object) -> bool:
    """Whether an answer is correct."""
    return isinstance(proof, str) and hmac.compare_digest(prove(secret, side, challenge), proof)
