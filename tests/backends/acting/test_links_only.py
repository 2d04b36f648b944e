"""The user's side of acting in a user's name: it handles only this user's links, whatever it is asked to do."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from fakes import FakeCluster, chain
from hypothesis import given
from hypothesis import strategies as st

from mirage.backends.agent_requests import (
    Act,
    AgentRequest,
    AgentResponse,
    CancelJob,
    CheckFiles,
    SignalJob,
    UpdateJob,
    Verdict,
)
from mirage.backends.links_only import JobIdentity, LinksOnly
from mirage.backends.user_side import GREETING, serve
from mirage.backends.wrappers import Audited, AuditedAction
from mirage.domain.bounds import LARGEST_SCRIPT
from mirage.domain.errors import ClusterUnavailable, NotPermitted, UnknownJob
from mirage.domain.files import Presence
from mirage.domain.job import BatchScript, JobChange, JobId, JobRequest, SignalReach
from mirage.domain.link import NO_JOB

FAR_FUTURE = 1 << 40
LINK = replace(chain().link_request(1), batch=BatchScript("#!/bin/sh\n"))
USERS = ("alice", "bob", "root")
TAGS = (
    "",
    "mirage:svc:1",
    "mirage:svc:12",
    "mirage:svc",
    "mirage:svc:0",
    "mirage:a b:1",
    "xmirage:svc:1",
    "nightly",
)
OURS = ("mirage:svc:1", "mirage:svc:12")


def populated() -> FakeCluster:
    """One job for each user and tag."""
    cluster = FakeCluster()
    for user in USERS:
        for tag in TAGS:
            cluster.submit(JobRequest("job", user, 60, tag=tag))
    return cluster


def identify(cluster: FakeCluster, job_id: JobId) -> JobIdentity:
    if job_id not in cluster.jobs:
        raise UnknownJob(f"job {job_id}")
    job = cluster.jobs[job_id]
    return JobIdentity(job.user, job.tag)


def own_side(cluster: FakeCluster, user: str = "alice") -> LinksOnly:
    return LinksOnly(
        cluster,
        user,
        lambda job_id: identify(cluster, job_id),
        lambda paths: cluster.check_files(paths, user),
    )


def obey(cluster: FakeCluster, order: bytes, user: str = "alice") -> AgentResponse:
    written = io.StringIO()
    serve(io.BytesIO(order), written, own_side(cluster, user))
    greeting, answer = written.getvalue().splitlines()
    assert greeting == GREETING
    return AgentResponse.from_text(
        answer, AgentRequest.from_text(order).files if order.startswith(b'{"order_id') else 0
    )


class Omnipotent(FakeCluster):
    """A Slurm without permission checks that records every job that was changed."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: list[JobId] = []

    def _owned(self, job_id: JobId, owner: str):  # type: ignore[no-untyped-def]
        del owner
        self.touched.append(job_id)
        return self.jobs[job_id]


job_ids = st.integers(90, 130).map(JobId)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
acts = (
    st.builds(
        JobRequest,
        st.just("job"),
        st.sampled_from(USERS),
        st.just(60),
        tag=st.sampled_from(TAGS),
        batch=st.none() | st.builds(BatchScript, st.just("#!/bin/sh"), st.lists(words).map(tuple)),
    )
    | st.builds(CancelJob, job_ids)
    | st.builds(UpdateJob, job_ids, st.just(JobChange(nice=5)))
    | st.builds(SignalJob, job_ids, st.sampled_from(["USR1", "--help", "9", "usr1"]), st.sampled_from(SignalReach))
)


@given(acts, st.sampled_from(USERS))
def test_only_links_of_the_user_are_ever_touched(act: Act, owner: str) -> None:
    cluster = Omnipotent()
    for user in USERS:
        for tag in TAGS:
            cluster.submit(JobRequest("job", user, 60, tag=tag))
    known = len(cluster.submissions)
    answer = obey(cluster, AgentRequest.of(act, owner, FAR_FUTURE).to_text().encode())
    for job_id in cluster.touched:
        assert owner == "alice"
        assert cluster.jobs[job_id].user == "alice"
        assert cluster.jobs[job_id].tag in OURS
    for request in cluster.submissions[known:]:
        assert request.user == "alice"
        assert request.tag in OURS
        assert request.batch is not None
        assert all(option.startswith("-") for option in request.batch.options)
    if answer.verdict is Verdict.DONE:
        assert cluster.touched or len(cluster.submissions) > known


@given(st.binary(max_size=200) | st.text().map(str.encode))
def test_whatever_cannot_be_read_is_refused(text: bytes) -> None:
    cluster = populated()
    before = dict(cluster.jobs)
    assert obey(cluster, text).verdict is Verdict.NOT_PERMITTED
    assert cluster.jobs == before


def test_orders_have_a_longest_length() -> None:
    answer = obey(populated(), b" " * ((64 << 20) + 1))
    assert "longer than" in answer.text


def test_order_with_the_largest_script_is_read() -> None:
    batch = BatchScript("#!/bin/sh\n" + "\udcff" * (LARGEST_SCRIPT - 10))
    cluster = populated()
    order = AgentRequest.of(replace(LINK, user="alice", batch=batch), "alice", FAR_FUTURE)
    assert obey(cluster, order.to_text().encode()).verdict is Verdict.DONE


def test_a_link_is_submitted_cancelled_changed_and_signalled() -> None:
    cluster = FakeCluster()
    actuator = own_side(cluster)
    job_id = actuator.submit(LINK)
    actuator.signal(job_id, "alice", "USR1", reach=SignalReach.ALL)
    held = actuator.submit(replace(LINK, tag="mirage:svc:2", held=True))
    actuator.update(held, "alice", JobChange(nice=7))
    actuator.cancel(job_id, "alice")
    assert cluster.changes == [(held, JobChange(nice=7))]
    assert cluster.signals == [(job_id, "USR1")]
    assert [job.job_id for job in cluster.live()] == [held]
    with pytest.raises(UnknownJob):
        actuator.cancel(JobId(17), "alice")


@pytest.mark.parametrize(
    "option", ["--comment=mirage:other:1", "--comm=x", "--comment", "other.sh", "--", "-", "", "--=x"]
)
def test_no_option_hides_the_tag_or_names_a_script(option: str) -> None:
    cluster = FakeCluster()
    request = replace(LINK, batch=BatchScript("#!/bin/sh", (option,)))
    with pytest.raises(NotPermitted):
        own_side(cluster).submit(request)
    assert cluster.submissions == []


@pytest.mark.parametrize(
    "option", ["--mail-type=END", "-n4", "--constraint=a", "--export=ALL", "-C", "--cpus-per-gpu=2"]
)
def test_other_options_pass(option: str) -> None:
    cluster = FakeCluster()
    request = replace(LINK, batch=BatchScript("#!/bin/sh", (option,)))
    own_side(cluster).submit(request)
    assert cluster.submissions == [request]


@pytest.mark.parametrize("signal", ["--full", "USR1 17", "", "usr1", "USR1\n", "0", "-9"])
def test_signals_are_names(signal: str) -> None:
    cluster = FakeCluster()
    actuator = own_side(cluster)
    job_id = actuator.submit(LINK)
    with pytest.raises(NotPermitted, match="not the name of a signal"):
        actuator.signal(job_id, "alice", signal, reach=SignalReach.BATCH)


def test_files_are_checked_for_the_user_alone() -> None:
    cluster = FakeCluster(files={"/home/alice/done"})
    paths = ("/home/alice/done", "/home/alice/other")
    answer = obey(cluster, AgentRequest.of(CheckFiles(paths), "alice", FAR_FUTURE).to_text().encode())
    assert [state.presence for state in answer.files] == [Presence.PRESENT, Presence.ABSENT]
    answer = obey(cluster, AgentRequest.of(CheckFiles(paths), "bob", FAR_FUTURE).to_text().encode())
    assert (answer.verdict, answer.files) == (Verdict.NOT_PERMITTED, ())


@pytest.mark.parametrize(
    "paths",
    [("done",), ("",), ("/a\nb",), ("/" + "x" * 256,), ("/x" * 2_100,), ("/done",) * 1_001],
)
def test_files_without_a_possible_path_are_rejected(paths: tuple[str, ...]) -> None:
    with pytest.raises(NotPermitted):
        own_side(FakeCluster()).check_files(paths, "alice")


def test_every_act_is_told_whatever_came_of_it() -> None:
    told: list[AuditedAction] = []
    cluster = FakeCluster()
    actuator = Audited(cluster, told.append)
    job_id = actuator.submit(LINK)
    actuator.signal(job_id, "alice", "USR1", reach=SignalReach.BATCH)
    actuator.cancel(job_id, "alice")
    with pytest.raises(UnknownJob):
        actuator.update(job_id, "alice", JobChange(held=False, nice=3))
    with pytest.raises(NotPermitted):
        actuator.cancel(job_id, "bob")
    cluster.down = True
    with pytest.raises(ClusterUnavailable):
        actuator.submit(LINK)
    assert told == [
        AuditedAction("alice", "submit mirage:svc:1", job_id, "done", tag="mirage:svc:1"),
        AuditedAction("alice", "signal USR1 to job 100", job_id, "done"),
        AuditedAction("alice", "cancel job 100", job_id, "done"),
        AuditedAction("alice", "update job 100: held=False nice=3", job_id, "UnknownJob: 100"),
        AuditedAction("bob", "cancel job 100", job_id, "NotPermitted: job 100 is not bob's"),
        AuditedAction(
            "alice", "submit mirage:svc:1", NO_JOB, "ClusterUnavailable: no route to host", tag="mirage:svc:1"
        ),
    ]


def test_an_act_that_fails_again_and_again_is_told_once_an_hour() -> None:
    told: list[AuditedAction] = []
    now, cluster = [0.0], FakeCluster(down=True)
    actuator = Audited(cluster, told.append, lambda: now[0])
    for minute in range(120):
        now[0] = 60.0 * minute
        with pytest.raises(ClusterUnavailable):
            actuator.submit(LINK)
    assert len(told) == 2
    cluster.down = False
    actuator.submit(LINK)
    cluster.down = True
    with pytest.raises(ClusterUnavailable):
        actuator.submit(LINK)
    assert [deed.result[:4] for deed in told[2:]] == ["done", "Clus"]
