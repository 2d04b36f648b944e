"""Errors of the testbed."""

from __future__ import annotations


class TestbedError(Exception):
    """An error whose message states what the user must do."""
