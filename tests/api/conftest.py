"""Fixtures of the API's tests."""

from api_world import world
from network_world import network

__all__ = ["network", "world"]
