"""Databases for these tests: SQLite files, and a real PostgreSQL where it is installed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from postgres_server import PostgresServer, server_for_tests

from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.store.opening import Store

# One worker runs all that need the server, so that there is one server.
BOTH = ["sqlite", "directory", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    yield from server_for_tests()


@pytest.fixture(scope="session")
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes empty databases: ``new_url("sqlite")``."""
    count = iter(range(1_000_000))

    def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('store')}/mirage.db"
        if kind == "directory":
            return f"directory://{tmp_path_factory.mktemp('store')}/shared"
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.new_database(f"mirage_{os.getpid()}_{next(count)}")

    return make


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> str:
    """An empty database of each kind."""
    return new_url(request.param)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.database.close()


@pytest.fixture(scope="module", params=BOTH)
def shared_store(request: pytest.FixtureRequest, new_url: Callable[[str], str]) -> Iterator[Store]:
    """One store for a whole module, for properties that try many values."""
    opened = open_store(new_url(request.param))
    yield opened
    opened.database.close()
