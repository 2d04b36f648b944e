"""Two head nodes: the leader dies, stops, hangs or ends, and each link is submitted once all the same."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest
from daemons import wait_until
from fake_slurm.fake import Fault
from heads import END, GO, LEASE, STOP, Heads, Proxy
from store.postgres_server import PostgresServer, server_for_tests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("failover")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    yield from server_for_tests()


@pytest.fixture
def url(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    return postgres.new_database(f"heads_{os.getpid()}_{abs(hash(request.node.name))}")


@pytest.fixture
def heads(tmp_path: Path, url: str) -> Iterator[Heads]:
    with Heads(tmp_path, url) as made:
        yield made


@pytest.mark.parametrize("kind", [Fault.HANG, Fault.LATE, Fault.LOSE_ANSWER_AND_HANG], ids=lambda kind: kind.name)
def test_a_leader_killed_in_the_middle_of_a_submission(heads: Heads, kind: Fault) -> None:
    """The submission never arrives, arrives when another leads, or has arrived without its answer."""
    heads.slurm.slowness = 2.0 * LEASE
    heads.slurm.fault("sbatch", kind)
    heads.add_chain(links=2, paused=True)
    heads.start_both()
    heads.resume()
    wait_until(heads.submitted, "the first submission")
    heads.first.kill()
    heads.second.wait_to_lead()
    heads.finish(links=2)


def test_a_leader_killed_between_two_links(heads: Heads) -> None:
    heads.add_chain(links=3)
    heads.start_both()
    wait_until(lambda: heads.record().head, "the first link")
    heads.first.kill()
    heads.second.wait_to_lead()
    heads.first.start().wait_to_stand_by()
    heads.finish(links=3)
    assert heads.lease().name == "head2"


def test_a_leader_that_was_stopped_in_a_submission_finds_another_in_its_place(heads: Heads) -> None:
    heads.slurm.slowness = 2.0 * LEASE
    heads.add_chain(links=2, paused=True)
    heads.slurm.fault("sbatch", Fault.LATE)
    heads.start_both()
    heads.resume()
    wait_until(heads.submitted, "the first submission")
    heads.first.signal(STOP)
    heads.second.wait_to_lead()
    heads.first.signal(GO)
    heads.first.wait_to_stand_by()
    assert heads.second.leads()
    heads.finish(links=2)


def test_one_that_ends_hands_over_at_once(heads: Heads) -> None:
    heads.add_chain(links=2)
    heads.start_both()
    wait_until(lambda: heads.record().head, "the first link")
    heads.first.signal(END)
    assert heads.first.process is not None
    assert heads.first.process.wait(60) == 0, heads.first.log
    assert heads.lease().name in ("", "head2"), "it was given back, not waited for"
    heads.second.wait_to_lead()
    heads.finish(links=2)


def test_a_database_that_goes_away_and_comes_back(heads: Heads, postgres: PostgresServer) -> None:
    heads.add_chain(links=2)
    heads.start_both()
    wait_until(lambda: heads.record().head, "the first link")
    postgres.stop()
    wait_until(lambda: not heads.first.leads(), "the end of its term")
    assert not heads.second.leads(), "without the database no daemon leads"
    postgres.start()
    wait_until(lambda: heads.first.leads() or heads.second.leads(), "a leader")
    heads.finish(links=2)


def test_a_leader_whose_database_hangs_is_followed_and_steps_down(tmp_path: Path, url: str) -> None:
    with contextlib.closing(Proxy(url)) as proxy, Heads(tmp_path, url, proxy.url) as heads:
        heads.add_chain(links=2)
        heads.start_both()
        wait_until(lambda: heads.record().head, "the first link")
        proxy.hang()
        heads.second.wait_to_lead()
        assert not heads.first.leads()
        proxy.flow()
        heads.first.wait_to_stand_by()
        heads.finish(links=2)


def test_one_that_stands_by_shows_everything_and_changes_nothing(heads: Heads) -> None:
    heads.add_chain(links=2, hours=40)
    heads.start_both()
    wait_until(lambda: heads.record().head, "the first link")
    status, page = heads.second.call("GET", "/api/v1/chains")
    assert (status, [each["id"] for each in page["chains"]]) == (200, ["svc"])
    status, refusal = heads.second.call("POST", "/api/v1/chains/svc/pause")
    assert status == 503
    assert "head1 leads" in refusal["detail"]
    examined = heads.second.mirage("doctor", "--config", str(heads.second.config))
    assert "head1 has the lease, in term 1" in examined.stdout
    assert heads.second.call("GET", "/readyz")[0] == 503
    assert heads.first.call("GET", "/readyz")[1]["checks"]["leadership"]
    assert heads.first.call("POST", "/api/v1/chains/svc/pause")[0] == 200
    wait_until(
        lambda: heads.second.call("GET", "/api/v1/chains/svc")[1]["status"] == "paused",
        "the news, on the other head",
    )
    assert len(heads.slurm.jobs()) == 1
