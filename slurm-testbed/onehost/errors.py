"""What the testbed rejects, in words for the reader."""

from __future__ import annotations


class TestbedError(Exception):
    """Something the user has to do or know; the message says what."""
