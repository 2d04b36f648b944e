"""Orders on their way to users' agents."""

from __future__ import annotations

import json
import os
import pwd
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api_world import call

from mirage.api.server import ApiServer
from mirage.backends.acting.orders import Answer, CancelJob, Order, Verdict
from mirage.domain.job import JobId

if TYPE_CHECKING:
    from api_world import World

AGENT = "/api/v1/agent"
ME = pwd.getpwuid(os.getuid()).pw_name


def ask(world: World, user: str, answers: list[Answer]) -> threading.Thread:
    def wait() -> None:
        answers.append(world.desk.ask(user, CancelJob(JobId(7))))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_an_order_is_fetched_and_answered(world: World) -> None:
    assert world.call("GET", f"{AGENT}/order?wait=0") == (204, None)
    assert world.desk.attached(ME)
    answers: list[Answer] = []
    thread = ask(world, ME, answers)
    status, document = world.call("GET", f"{AGENT}/order?wait=30")
    assert status == 200
    assert document["owner"] == ME
    assert document["cancel"] == {"job_id": 7}
    answer = Answer(Verdict.DONE, text="done")
    path = f"{AGENT}/orders/{document['order_id']}/answer"
    assert world.call("POST", path, answer.to_text()) == (200, {"awaited": True})
    thread.join()
    assert answers == [answer]
    assert world.call("POST", path, answer.to_text()) == (200, {"awaited": False})


def test_an_order_reaches_its_owner_only(world: World) -> None:
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    world.desk.attach("nobody")
    answers: list[Answer] = []
    thread = ask(world, "nobody", answers)
    assert world.call("GET", f"{AGENT}/order?wait=0.5", user="daemon") == (204, None)
    status, document = world.call("GET", f"{AGENT}/order", user="nobody")
    assert status == 200
    order = Order.of(CancelJob(JobId(7)), "nobody", 0)
    assert document.keys() == json.loads(order.to_text()).keys()
    path = f"{AGENT}/orders/{document['order_id']}/answer"
    text = json.loads(Answer(Verdict.DONE).to_text())
    status, problem = world.call("POST", path, text, user="daemon")
    assert (status, problem["status"]) == (403, 403)
    assert world.call("POST", path, text, user="nobody")[1] == {"awaited": True}
    thread.join()
    assert answers[0].verdict is Verdict.DONE


def test_what_is_no_answer_is_refused(world: World) -> None:
    status, problem = world.call("POST", f"{AGENT}/orders/x/answer", {"verdict": "PERHAPS"})
    assert status == 422
    assert "Answer" in problem["detail"]


def test_a_daemon_without_a_desk_says_so(world: World) -> None:
    path = world.socket.parent / "own.sock"
    server = ApiServer(replace(world.service, desk=None), path)
    server.start()
    status, problem = call(str(path), "GET", f"{AGENT}/order", None)
    server.stop()
    assert status == 403
    assert "acting.mode" in problem["detail"]
