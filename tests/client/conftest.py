"""Fixtures of the client's tests."""

from api_world import world

__all__ = ["world"]
