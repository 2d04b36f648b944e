"""Requests to adopt a job that asks for it: in a format that earlier agents read, and for its owner alone."""

from __future__ import annotations

import json

import pytest
from fakes import FakeCluster, chain

from mirage.backends.agent_requests import AdoptJob, AgentRequest, AgentResponse, BadOrder, CancelJob, Verdict
from mirage.backends.links_only import JobIdentity, LinksOnly
from mirage.backends.marked_jobs import Adopter
from mirage.backends.user_side import carry_out, execute
from mirage.backends.wrappers import Leading
from mirage.domain.errors import NotPermitted
from mirage.domain.job import JobId

JOB = JobId(47)
NOW = 1_000


def own_side(adopted: list[JobId] | None) -> LinksOnly:
    def adopt(job_id: JobId) -> AgentResponse:
        assert adopted is not None
        adopted.append(job_id)
        return AgentResponse(Verdict.DONE, job_id, text=chain().chain_id)

    def identify(job_id: JobId) -> JobIdentity:
        raise AssertionError(job_id)

    return LinksOnly(FakeCluster(), "alice", identify, lambda paths: (), None if adopted is None else adopt)


def ask(owner: str, adopted: list[JobId] | None) -> AgentResponse:
    return execute(AgentRequest.of(AdoptJob(JOB), owner, NOW), own_side(adopted), lambda: NOW)


def test_job_is_adopted_for_the_user_of_the_process_alone() -> None:
    adopted: list[JobId] = []
    assert ask("alice", adopted) == AgentResponse(Verdict.DONE, JOB, text="svc")
    assert ask("bob", adopted).verdict is Verdict.NOT_PERMITTED
    assert ask("alice", None).verdict is Verdict.NOT_PERMITTED
    assert adopted == [JOB]
    with pytest.raises(NotPermitted):
        carry_out(AdoptJob(JOB), "alice", FakeCluster())


def test_request_is_read_as_it_was_written_and_others_are_as_before() -> None:
    order = AgentRequest.of(AdoptJob(JOB), "alice", NOW)
    assert AgentRequest.from_text(order.to_text()) == order
    other = AgentRequest.of(CancelJob(JOB), "alice", NOW)
    assert json.loads(other.to_text()).keys() == {
        *("order_id", "owner", "start_by", "submit", "cancel", "update", "signal", "check_files")
    }
    assert AgentRequest.from_text(other.to_text()) == other


@pytest.mark.parametrize("value", ['{"job_id":0,"x":1}', '{"job_id":"47"}', "47", "[]", "null"])
def test_request_that_is_none_is_rejected(value: str) -> None:
    text = AgentRequest.of(AdoptJob(JOB), "alice", NOW).to_text().replace('{"job_id":47}', value)
    with pytest.raises(BadOrder):
        AgentRequest.from_text(text)


def test_only_the_leader_and_only_for_the_holder_of_the_name() -> None:
    asked: list[str] = []

    def adopt(owner: str, job_id: JobId) -> AgentResponse:
        asked.append(owner)
        return AgentResponse(Verdict.DONE, job_id)

    def check(owner: str) -> None:
        if owner == "bob":
            raise NotPermitted("the name is another's")

    adopter = Adopter(adopt)
    led = Leading(FakeCluster(), lambda: "", check).adopting(adopter)
    deposed = Leading(FakeCluster(), lambda: "not the leader", check).adopting(adopter)
    assert led.adopt("alice", JOB).job_id == JOB
    for each, owner in ((led, "bob"), (deposed, "alice")):
        with pytest.raises(NotPermitted):
            each.adopt(owner, JOB)
    assert asked == ["alice"]
