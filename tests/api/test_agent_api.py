"""Orders on their way to users' agents."""

from __future__ import annotations

import json
import logging
import os
import pwd
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema_rs
import pytest
from api_world import call, definition
from serving import serving

from mirage.api.access.authentication import Authenticator
from mirage.api.access.rates import RateLimiter
from mirage.api.server import ApiServer
from mirage.backends.agent_requests import AgentRequest, AgentResponse, CancelJob, CheckFiles, Verdict
from mirage.domain.files import FileState, Presence
from mirage.domain.job import JobId
from mirage.provisioner import machine

if TYPE_CHECKING:
    from api_world import World

    from mirage.backends.agent_requests import Act

AGENT = "/api/v1/agent"
LETTERS = str.maketrans("0123456789", "ghijklmnop")
ME = pwd.getpwuid(os.getuid()).pw_name


def ask(
    world: World,
    user: str,
    answers: list[AgentResponse],
    act: Act = CancelJob(JobId(7)),  # noqa: B008 (frozen)
) -> threading.Thread:
    def wait() -> None:
        answers.append(world.desk.ask(user, act))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_an_order_is_fetched_and_answered(world: World) -> None:
    assert world.call("GET", f"{AGENT}/order?wait=0") == (204, None)
    assert world.desk.attached(ME)
    answers: list[AgentResponse] = []
    thread = ask(world, ME, answers)
    status, document = world.call("GET", f"{AGENT}/order?wait=30")
    assert status == 200
    assert document["owner"] == ME
    assert document["cancel"] == {"job_id": 7}
    answer = AgentResponse(Verdict.DONE, text="done")
    path = f"{AGENT}/orders/{document['order_id']}/answer"
    assert world.call("POST", path, answer.to_text()) == (200, {"awaited": True})
    thread.join()
    assert answers == [answer]
    assert world.call("POST", path, answer.to_text()) == (200, {"awaited": False})


def test_an_order_reaches_its_owner_only(world: World) -> None:
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    world.desk.attach("nobody")
    answers: list[AgentResponse] = []
    thread = ask(world, "nobody", answers)
    assert world.call("GET", f"{AGENT}/order?wait=0.5", user="daemon") == (204, None)
    status, document = world.call("GET", f"{AGENT}/order", user="nobody")
    assert status == 200
    order = AgentRequest.of(CancelJob(JobId(7)), "nobody", 0)
    assert document.keys() == json.loads(order.to_text()).keys()
    path = f"{AGENT}/orders/{document['order_id']}/answer"
    text = json.loads(AgentResponse(Verdict.DONE).to_text())
    invented = f"{AGENT}/orders/{'0' * len(document['order_id'])}/answer"
    for another in (path, invented):
        assert world.call("POST", another, text, user="daemon") == (200, {"awaited": False})
    assert world.call("POST", path, text, user="nobody")[1] == {"awaited": True}
    thread.join()
    assert answers[0].verdict is Verdict.DONE


def take(world: World, act: Act, answers: list[AgentResponse]) -> tuple[threading.Thread, str]:
    """An order that this user's agent has taken: who waits for its answer, and where that goes."""
    world.desk.attach(ME)
    thread = ask(world, ME, answers, act)
    status, document = world.call("GET", f"{AGENT}/order?wait=30")
    assert status == 200
    return thread, f"{AGENT}/orders/{document['order_id']}/answer"


@pytest.mark.parametrize(
    "answer",
    [
        AgentResponse(Verdict.DONE, JobId(7)),
        AgentResponse(Verdict.REJECTED, reason="InvalidAccount", text="Invalid account"),
        AgentResponse(Verdict.DONE, files=(FileState(Presence.PRESENT, denied=False),)),
    ],
)
def test_description_of_an_answer_is_that_of_agents(answer: AgentResponse) -> None:
    described = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    schema = {"$ref": "#/components/schemas/AgentResponse", "components": described["components"]}
    document = json.loads(answer.to_text())
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid(document)
    assert not any(validator.is_valid({k: v for k, v in document.items() if k != name}) for name in document)
    assert not validator.is_valid(document | {"verdict": answer.verdict.value})


def test_what_is_no_answer_is_refused(world: World) -> None:
    answers: list[AgentResponse] = []
    thread, path = take(world, CancelJob(JobId(7)), answers)
    status, problem = world.call("POST", path, {"verdict": "PERHAPS"})
    assert status == 422
    assert "AgentResponse" in problem["detail"]
    assert world.call("POST", path, AgentResponse(Verdict.DONE).to_text())[0] == 200
    thread.join()


def test_answer_to_unknown_order_is_not_read(world: World) -> None:
    for body in ("[" * 60_000, {"verdict": "PERHAPS"}, "x" * 250_000):
        assert world.call("POST", f"{AGENT}/orders/x/answer", body) == (200, {"awaited": False})


def test_answers_to_invented_orders_are_logged_as_alike(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "mirage.requests"):
        for _ in range(3):
            name = uuid.uuid4().hex.translate(LETTERS)
            world.call("POST", f"{AGENT}/orders/{name}/answer", AgentResponse(Verdict.DONE).to_text())
        world.call("GET", "/nowhere")  # the line before is written by now
    lines = [record for record in caplog.records if record.name == "mirage.requests"][:3]
    assert len({line.getMessage() for line in lines}) == 3
    (alike,) = {line.__dict__["alike"] for line in lines}
    assert "{order_id}" in alike


@pytest.mark.parametrize("act", [CancelJob(JobId(7)), CheckFiles(("/a", "/b"))])
def test_answer_says_no_more_than_its_order_asks(world: World, act: Act) -> None:
    answers: list[AgentResponse] = []
    thread, path = take(world, act, answers)
    absent = FileState(Presence.ABSENT)
    for many in (3, 1_000, 4_000):
        text = AgentResponse(Verdict.DONE, files=(absent,) * many).to_text()
        began = time.process_time()
        assert world.call("POST", path, text)[0] == 422
        assert time.process_time() - began < 1
    fits = AgentResponse(Verdict.DONE, files=(absent,) * (2 if isinstance(act, CheckFiles) else 0))
    assert world.call("POST", path, fits.to_text()) == (200, {"awaited": True})
    thread.join()
    assert answers == [fits]


def test_bytes_of_an_answer_count_against_the_rate(world: World) -> None:
    rates = RateLimiter(0.01, 4)
    with serving(world, gate=Authenticator(rates=rates)) as served:
        thread, path = take(served, CancelJob(JobId(7)), [])
        text = AgentResponse(Verdict.DONE).to_text()
        assert served.call("POST", path, text + " " * 250_000)[0] == 200
        assert served.call("GET", "/api/v1/me")[0] == 429
        thread.join()


def test_each_caller_is_told_whether_an_agent_of_theirs_runs(world: World) -> None:
    world.desk.attach("nobody")
    assert world.call("GET", "/api/v1/cluster")[1]["agent"] is False
    world.desk.attach(ME)
    assert world.call("GET", "/api/v1/cluster")[1]["agent"] is True


def test_a_daemon_without_a_desk_says_so(world: World) -> None:
    path = world.socket.parent / "own.sock"
    server = ApiServer(replace(world.service, desk=None), path)
    server.start()
    status, problem = call(str(path), "GET", f"{AGENT}/order", None)
    needed = call(str(path), "GET", "/api/v1/cluster", None)[1]["agent"]
    server.stop()
    assert needed is None
    assert status == 403
    assert "acting.mode" in problem["detail"]


def test_cancelled_chain_says_that_its_jobs_stay_without_an_agent(world: World) -> None:
    paths = [f"/api/v1/chains/{world.call('POST', '/api/v1/chains', definition(name))[1]['id']}" for name in "ab"]
    world.loop.records = [machine.plan(record, "due", 0)[0] for record in world.loop.records]
    world.loop.cycle()
    assert "mirage agent" in world.call("POST", f"{paths[0]}/cancel")[1]["warning"]
    assert world.call("GET", "/api/v1/agent/order?wait=0")[0] == 204
    assert world.call("POST", f"{paths[1]}/cancel")[1]["warning"] == ""


def test_new_chain_says_that_its_owner_has_no_agent(world: World) -> None:
    assert "mirage agent" in world.call("POST", "/api/v1/chains", definition())[1]["warning"]
    assert world.call("GET", "/api/v1/agent/order?wait=0")[0] == 204
    assert world.call("POST", "/api/v1/chains", definition("other"))[1]["warning"] == ""
