"""``POST /chains?adopt=``: whose job may become the first link of a chain."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest
from api_world import START, definition, serve

from mirage.backends.links_only import JobIdentity
from mirage.domain.errors import ClusterUnavailable, UnknownJob
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import LinkState
from mirage.domain.tags import owned_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World

    from mirage.domain.job import JobId

CHAINS = "/api/v1/chains"
ME = pwd.getpwuid(os.getuid()).pw_name
TAG = f"mirage:{owned_id('train-k3q9', ME)}:1"
OTHER = f"mirage:{owned_id('other', ME)}:1"
RUNS = JobIdentity(ME, TAG, START, JobState.RUNNING)
JOBS = {
    1: RUNS,
    2: JobIdentity("nobody-else", TAG, START, JobState.RUNNING),
    3: JobIdentity(ME, TAG, START, JobState.FAILED),
    4: JobIdentity(ME, TAG, START, JobState.RUNNING, alone=False),
    5: JobIdentity(ME, "", START, JobState.RUNNING),
    6: JobIdentity(ME, OTHER, START, JobState.RUNNING),
    7: JobIdentity("", TAG, START, JobState.RUNNING),
    8: JobIdentity(ME, TAG, ABSENT, JobState.RUNNING),
    9: JobIdentity(ME, TAG, START),
}


def identify(job_id: JobId, owner: str) -> JobIdentity:
    assert owner == ME
    if job_id == 13:
        raise ClusterUnavailable("slurmctld does not answer")
    if job_id not in JOBS:
        raise UnknownJob(f"job {job_id}")
    return JOBS[job_id]


@pytest.fixture
def adopting() -> Iterator[World]:
    yield from serve(identify=identify)


def test_adopted_job_is_link_1_from_the_start(adopting: World) -> None:
    status, answer = adopting.call("POST", f"{CHAINS}?adopt=1", definition())
    assert status == 201, answer
    (record,) = adopting.loop.records
    record.check()
    (link,) = record.links
    assert (link.job_id, link.state, link.tag) == (1, LinkState.SUBMITTED, TAG)
    assert (link.submit, link.job_submit) == (START, START)


@pytest.mark.parametrize(
    ("job", "status"),
    [(2, 422), (3, 422), (4, 422), (5, 422), (6, 422), (7, 503), (8, 422), (9, 422), (12, 422), (13, 503)],
)
def test_job_that_is_no_such_link_makes_no_chain(adopting: World, job: int, status: int) -> None:
    found, answer = adopting.call("POST", f"{CHAINS}?adopt={job}", definition())
    assert (found, answer["status"]) == (status, status)
    assert adopting.loop.records == []


def test_job_of_another_user_is_answered_as_one_that_is_not_there(adopting: World) -> None:
    _, hidden = adopting.call("POST", f"{CHAINS}?adopt=2", definition())
    _, missing = adopting.call("POST", f"{CHAINS}?adopt=12", definition())
    assert hidden["detail"].replace("2", "12") == missing["detail"]


@pytest.mark.parametrize("job", ["0", "-1", "4294967294", "x", "1e3", "1_2"])
def test_number_that_no_job_has_is_rejected(adopting: World, job: str) -> None:
    assert adopting.call("POST", f"{CHAINS}?adopt={job}", definition())[0] == 422
    assert adopting.loop.records == []


def test_job_is_adopted_by_one_chain(adopting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner has set another tag meanwhile."""
    assert adopting.call("POST", f"{CHAINS}?adopt=1", definition())[0] == 201
    monkeypatch.setitem(JOBS, 1, JOBS[6])
    status, answer = adopting.call("POST", f"{CHAINS}?adopt=1", definition("other"))
    assert (status, "job 1" in answer["detail"]) == (409, True)
    assert len(adopting.loop.records) == 1


@pytest.mark.parametrize("changes", [{"releases_links": True, "identify": identify}, {}])
def test_daemon_that_can_adopt_nothing_says_so(changes: dict[str, Any]) -> None:
    for world in serve(**changes):
        status, answer = world.call("POST", f"{CHAINS}?adopt=1", definition())
        assert (status, answer["detail"].partition(":")[0]) == (422, "adopt")
