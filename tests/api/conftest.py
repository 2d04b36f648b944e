"""Fixtures of the interface's tests."""

from api_world import world

__all__ = ["world"]
