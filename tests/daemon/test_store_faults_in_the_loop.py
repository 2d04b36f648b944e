"""The database fails repeatedly within a cycle: a decision is stored first or not executed."""

from __future__ import annotations

import contextlib
import os
import random
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, chain
from sqlalchemy import event
from store.postgres_server import PostgresServer, server_for_tests

from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection
from mirage.cli.tables import STANDS_BY
from mirage.config.loading import load_config
from mirage.daemon.supervision import Standby, Supervisor
from mirage.domain.chain import ChainRecord, DoneCondition

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.bootstrap.service import DaemonService

LINKS = 8


class Disk:
    """A SQLite database that cannot grow while the disk is full."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/mirage.db"

    @contextlib.contextmanager
    def away(self, service: DaemonService) -> Iterator[None]:
        database = service.store.database

        def limit(connection: sqlite3.Connection, entry: object) -> None:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(database._engine, "connect", limit)
        database.close()
        yield
        event.remove(database._engine, "connect", limit)
        database.close()


class Server:
    """A PostgreSQL that is stopped and started again."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.url = server.new_database(f"loop_{os.getpid()}_{random.getrandbits(32)}")

    @contextlib.contextmanager
    def away(self, service: DaemonService) -> Iterator[None]:
        self.server.stop()
        yield
        self.server.start()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    yield from server_for_tests()


@pytest.fixture(params=["disk", pytest.param("server", marks=pytest.mark.xdist_group("postgres"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Disk | Server:
    return Disk(tmp_path) if request.param == "disk" else Server(request.getfixturevalue("postgres"))


def assembled(folder: Path, url: str, cluster: FakeCluster) -> DaemonService:
    cluster.rate = 1.0
    file = folder / "mirage.toml"
    file.write_text(
        f'[service]\nstate = "{folder}"\nruntime = "{folder}"\n[loop]\npredictor = "reactive"\n'
        f'[api]\nenabled = false\n[store]\nurl = "{url}"\n'
    )
    return assemble(load_config(file).config, ClusterConnection(cluster, cluster, cluster, cluster), lambda: None)


@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_comes_and_goes_costs_no_link(place: Disk | Server, seed: int, tmp_path: Path) -> None:
    """Away for moments and for hours, at any step: at a submission, while a link runs, at its end."""
    rng, cluster = random.Random(seed), FakeCluster()
    service = assembled(tmp_path, place.url, cluster)
    supervisor, failed = Supervisor(service), 0
    service.store.chains.save(ChainRecord(chain(HOUR, DoneCondition(exit_code=None, links=LINKS))))

    def cycles(count: int) -> int:
        failures = 0
        for _ in range(count):
            cluster.advance(cluster.time + 10 * MIN)
            supervisor.cycle()
            failures += supervisor.failures > 0
        return failures

    for length in rng.sample([1, 2, 3, 25, 30], 5):  # what is written in half an hour may still find room
        assert cycles(rng.randint(1, 7)) == 0
        with place.away(service):
            failed += cycles(length)
    assert failed >= 5, "it was felt"
    cycles(10 * LINKS)
    (record,) = service.store.chains.load()
    service.close()
    record.check()
    assert record.over
    assert [request.tag for request in cluster.submissions] == [link.tag for link in record.links]
    assert len(record.links) == LINKS


@pytest.mark.xdist_group("postgres")
@pytest.mark.parametrize("kind", [Supervisor, Standby])
def test_a_daemon_whose_database_is_away_says_so_of_every_chain(
    kind: type[Supervisor | Standby], postgres: PostgresServer, tmp_path: Path
) -> None:
    """Rows of the last cycle that worked look like those of now."""
    place, cluster = Server(postgres), FakeCluster()
    service = assembled(tmp_path, place.url, cluster)
    turns = kind(service)
    service.store.chains.save(ChainRecord(chain(HOUR, DoneCondition(exit_code=None, links=LINKS))))
    for _ in range(3):
        cluster.advance(cluster.time + MIN)
        turns.cycle()
    (chain_id,) = service.loop.status.explained
    with place.away(service):
        cluster.advance(cluster.time + 10 * MIN)
        turns.cycle()
        assert turns.failures == 1
        shown = service.loop.status
        assert shown.explained == {chain_id: shown.sentence}
        assert shown.sentence.startswith(STANDS_BY)
        assert place.url.rpartition("/")[2] in shown.sentence
    turns.cycle()
    assert turns.failures == 0
    assert service.loop.status.sentence != shown.sentence
    service.close()
