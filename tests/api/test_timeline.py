"""A chain's timeline: all its links, and its journal page by page."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from serving import serving

from mirage.api.conventions.documents import instant
from mirage.api.routes.chaindocuments import chain_document
from mirage.control.status import Status
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.decision import ActionScores, WaitForecast
from mirage.domain.job import ABSENT, Job, JobId, JobRequest, JobState
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import Link, LinkState
from mirage.domain.objective import Alternative, Outcome
from mirage.domain.snapshot import Snapshot
from mirage.provisioner.events import LinkResumed, LinkSuspended
from mirage.provisioner.machine import apply
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

    from mirage.store.opening import Store

ME = pwd.getpwuid(os.getuid()).pw_name
T0 = 1_700_000_000
HOUR = 3_600
PATH = "/api/v1/chains/svc/timeline"


def record() -> ChainRecord:
    """The second link came half an hour late, the third ten minutes early and still runs."""
    chain = Chain(ChainId("svc"), "svc", ME, JobRequest("svc", ME, HOUR))
    spans = [(0, HOUR), (HOUR + 1_800, 2 * HOUR + 1_800), (2 * HOUR + 1_200, 3 * HOUR + 1_200)]
    links = [
        Link(
            i, chain.tag(i), T0 + a - 60, LinkState.ENDED, JobId(i), T0 + a - 50, T0 + a, T0 + b, JobState.TIMEOUT
        )
        for i, (a, b) in enumerate(spans, start=1)
    ]
    links[2] = Link(3, chain.tag(3), T0 + 4_000, LinkState.RUNNING, JobId(3), T0 + 4_010, T0 + 8_400, T0 + 12_000)
    return ChainRecord(chain, tuple(links))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/mirage.db")
    yield opened
    opened.close()


def test_what_a_chain_saved_is_the_sum_of_what_is_known(world: World) -> None:
    """Link 2 was submitted 1,750 s after the end, without success; of link 3 it was predicted what that would
    have cost."""
    last = replace(record().links[2], alternative=Alternative(0, HOUR, 5 * HOUR))
    shown(world, record().with_link(last))
    with serving(world) as served:
        found = served.call("GET", "/api/v1/chains/svc")[1]
    assert (found["saved"], found["appraised"]) == (
        {"p10": -1_750, "p50": HOUR - 1_750, "p90": 5 * HOUR - 1_750},
        2,
    )
    assert (found["handovers"], found["interruption"]) == (2, 1_800)
    shown(world, ChainRecord(record().chain, record().links[:1]))
    with serving(world) as served:
        found = served.call("GET", "/api/v1/chains/svc")[1]
    assert (found["saved"], found["appraised"]) == (None, 0)


@pytest.mark.parametrize(
    ("submit", "limit_end", "appraised"),
    [(2 * HOUR, 3 * HOUR, 0), (2 * HOUR, 2 * HOUR, 1), (3 * HOUR - 60, ABSENT, 1), (3 * HOUR, 3 * HOUR, 1)],
)
def test_link_submitted_as_its_predecessor_was_to_end_saved_nothing(
    world: World, submit: int, limit_end: int, appraised: int
) -> None:
    """Whatever was predicted: it is the very case to compare with. That end may be known by the limit alone."""
    first, second = record().links[0], record().links[2]
    end = T0 + 3 * HOUR
    first = replace(first, end=end, limit_end=limit_end if limit_end == ABSENT else T0 + limit_end)
    late = Alternative(0, HOUR, 5 * HOUR) if appraised else None
    second = replace(second, index=2, submit=T0 + submit, start=end + 600, end=end + HOUR, alternative=late)
    shown(world, replace(record(), links=(first, second)))
    with serving(world) as served:
        found = served.call("GET", "/api/v1/chains/svc")[1]
    assert (found["interruption"], found["appraised"]) == (600, appraised)
    assert found["saved"] == ({"p10": 0, "p50": 0, "p90": 0} if appraised else None)


def test_hand_over_that_goes_on_and_a_link_that_is_not_ready_are_shown(world: World) -> None:
    ended, running = record().links[0], record().links[2]
    both = (replace(ended, state=LinkState.RUNNING, end=T0 + HOUR), replace(running, index=2, start=T0 + 1_000))
    shown(world, replace(record(), links=both))
    seen = replace(world.loop.status.snapshot, stale_since=ABSENT)
    unready = frozenset({ChainId("svc")})
    world.loop.status = replace(world.loop.status, time=T0 + 1_600, snapshot=seen, unready=unready)
    with serving(world) as served:
        found = served.call("GET", "/api/v1/chains/svc")[1]
    assert (found["overlap"], found["unready"], found["handovers"]) == (600, 2, 0)


def test_suspended_link_is_no_service_and_has_no_end() -> None:
    chain = record()
    chain = apply(chain, LinkSuspended(3, T0 + 9_200), T0 + 9_200)
    running = chain.links[2]
    job = Job(JobId(3), "svc", ME, "gpu", 1, HOUR, JobState.SUSPENDED, 0, node_list="gpu-1", tag=running.tag)
    snapshot = replace(Snapshot.unseen(T0 + 10_000), links={running.tag: job}, stale_since=ABSENT)
    status = Status(T0 + 10_000, "", snapshot, (chain,))
    found = chain_document(chain, status)
    assert (found.state, found.since, found.links[2].job_state) == ("down", instant(T0 + 9_200), "SUSPENDED")
    assert (found.links[2].end, found.links[2].nodes) == (None, "gpu-1")
    jobs = {running.tag: replace(job, state=JobState.RUNNING)}
    chain = apply(chain, LinkResumed(3, T0 + 10_200), T0 + 10_200)
    assert chain_document(chain, status).suspended == 1_000
    found = chain_document(chain, replace(status, snapshot=replace(snapshot, links=jobs)))
    assert (found.state, found.links[2].end) == ("up", "2023-11-15T01:33:20Z")


def test_only_links_whose_end_was_seen_have_an_exit_code(world: World) -> None:
    """0 would say of the others that they went well."""
    ended, lost, running = record().links
    links = (replace(ended, exit_code=3), replace(lost, state=LinkState.LOST), running)
    shown(world, replace(record(), links=links))
    with serving(world) as served:
        found = served.call("GET", "/api/v1/chains/svc")[1]["links"]
    assert [link["exit_code"] for link in found] == [3, None, None]


def shown(world: World, *records: ChainRecord) -> None:
    world.loop.records = list(records)
    world.loop.cycle()


def decided(time: int, link: int, predictor: str = "quantile", kind: EntryKind = EntryKind.DECISION) -> Entry:
    forecast = WaitForecast((0.1, 0.5, 0.9), (time + 60.0, time + 600.0, time + 6_000.0))
    return Entry(time, ChainId("svc"), kind, "hold: it is early", link, predictor, forecast)


def test_links_handovers_and_forecasts_against_what_happened(world: World, store: Store) -> None:
    shown(world, record())
    store.journal.write(Entry(T0, ChainId("svc"), EntryKind.COMMAND, "chain svc added"))
    store.journal.write(decided(T0 + 100, 2))
    store.journal.write(
        Entry(
            T0 + 100,
            ChainId("svc"),
            EntryKind.SHADOW,
            "submit: submitting now scores 2",
            2,
            "dqn",
            ActionScores(2.0, 1.0),
        )
    )
    store.journal.write(Entry(T0 + 200, ChainId("svc"), EntryKind.DECISION, "hold: link 3 is held", 3))
    store.journal.write(Entry(T0 + 300, ChainId("svc"), EntryKind.OUTCOME, "late", 1, outcome=Outcome(1, 2)))
    store.journal.write(Entry(T0 + 300, ChainId("other"), EntryKind.EVENT, "not yours"))
    store.journal.flush()
    with serving(world, journal=store.journal) as served:
        status, found = served.call("GET", PATH)
    assert status == 200, found
    assert [(bar["index"], bar["state"], bar["wait"]) for bar in found["links"]] == [
        (1, "ended", 50),
        (2, "ended", 50),
        (3, "running", 4_390),
    ]
    assert [(each["successor"], each["interruption"], each["overlap"]) for each in found["handovers"]] == [
        (2, 1_800, 0),
        (3, 0, 600),
    ]
    assert [each["saved"] for each in found["handovers"]] == [dict.fromkeys(("p10", "p50", "p90"), -1_750), None]
    shadow, charge = found["forecasts"]
    assert (charge["p10"], charge["p50"], charge["p90"]) == (
        "2023-11-14T22:16:00Z",
        "2023-11-14T22:25:00Z",
        "2023-11-14T23:55:00Z",
    )
    assert charge["started"] == found["links"][1]["start"] == "2023-11-14T23:43:20Z"
    assert (shadow["shadow"], shadow["decision"], shadow["submit_score"], shadow["p50"]) == (
        True,
        "submit",
        2.0,
        None,
    )
    assert [entry["text"] for entry in found["entries"]] == ["late", "chain svc added"]
    assert found["first"] == "2023-11-14T22:12:20Z"
    assert found["last"] == "2023-11-15T01:33:20Z"
    assert found["next"] is None


def test_pages_share_nothing_and_leave_nothing_out(world: World, store: Store) -> None:
    shown(world, record())
    for minute in range(40):
        store.journal.write(decided(T0 + 60 * minute, 2))
        store.journal.write(Entry(T0 + 60 * minute, ChainId("svc"), EntryKind.EVENT, f"event {minute}", 1))
    store.journal.flush()
    entries, forecasts, cursor = [], [], ""
    with serving(world, journal=store.journal) as served:
        while True:
            _, found = served.call("GET", f"{PATH}?limit=15{cursor}")
            entries += [entry["text"] for entry in found["entries"]]
            forecasts += [point["time"] for point in found["forecasts"]]
            if found["next"] is None:
                break
            cursor = f"&cursor={found['next']}"
        _, thinned = served.call("GET", f"{PATH}?link=2&limit=10")
    assert entries == [f"event {minute}" for minute in reversed(range(40))]
    assert len(forecasts) == len(set(forecasts)) == 40
    assert forecasts == sorted(forecasts, reverse=True)
    assert [point["time"] for point in thinned["forecasts"]] == forecasts[::4]
    assert thinned["entries"] == []


def test_others_chains_and_absent_journals(world: World) -> None:
    assert world.call("GET", PATH)[0] == 404
    shown(world, record())
    status, found = world.call("GET", PATH)
    assert (status, found["detail"]) == (503, "this daemon has no journal")
