"""The policies of the simulator in the gateway's queue: each sends every request to a unit that can answer it."""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from serving_world import FirstCome, make_desk

from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.serving.admission import BudgetReservation, MemoryBudget
from mirage.allocation.inference.serving.configfile import digest_of, read_config
from mirage.allocation.inference.serving.gateway import Gateway, first_come
from mirage.allocation.inference.serving.meters import ServingMeters
from mirage.allocation.inference.serving.request_queue import ArrivedRequest, RequestQueue
from mirage.allocation.inference.serving.seating import estimates_of, system_of
from mirage.allocation.inference.serving.worker_supervisor import Seat
from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.inference.serving.exchanges import WorkerAnswer
    from mirage.domain.inference import SystemView
    from mirage.ports import RequestPolicy

SECONDS = np.array([[0.01, 0.03], [0.05, math.nan], [math.nan, 0.02]])
NAMES = ("fcfs", "edf", "llf", "sjf", "lft", "prema", "dream", "herald", "planaria", "random", "listed", "triage")


def play(desk: RequestQueue, policy: RequestPolicy, count: int) -> list[int]:
    """Arrivals at random, ends when they are due; a unit is down periodically. The order of the answers."""
    chance, now, ends, answered = random.Random(3), 0.0, dict[int, tuple[float, int]](), list[int]()
    arrivals = sorted(chance.uniform(0, count * 0.008) for _ in range(count))
    policy.begin()
    while arrivals or ends or desk.waiting:
        now = min([*arrivals[:1], *(end for end, _ in ends.values())], default=now + 0.01)
        if arrivals and arrivals[0] <= now:
            arrivals.pop(0)
            model = chance.randrange(3)
            desk.admit(
                ArrivedRequest(model, chance.randrange(2), now + chance.choice([0.02, 0.2, math.inf]), 1.0), now
            )
        for unit in [unit for unit, (end, _) in ends.items() if end <= now]:
            answered.append(ends.pop(unit)[1])
            desk.answered(unit, now)
        for start in desk.obey(policy.decide(desk.view(now)), now):
            ends[start.unit] = (now + SECONDS[start.model, start.unit // 2], start.request)
        desk.check()
    return answered


@pytest.mark.parametrize("name", NAMES)
def test_every_request_is_answered_under_every_policy(name: str) -> None:
    desk = make_desk(most=1000)
    for unit in range(4):
        desk.raise_unit(unit)
    assert sorted(play(desk, request_policy(name), 120)) == list(range(120))


def test_first_come_is_what_the_registry_calls_fcfs_where_units_are_alike() -> None:
    """The one that stands in for a policy which fails decides as the slow one that is seen to be right."""
    desk = make_desk(most=100)
    for unit in (0, 2, 3):
        desk.raise_unit(unit)
    for model in (1, 2, 0, 1, 0, 2):
        desk.admit(ArrivedRequest(model, 0, math.inf, 1.0), 0.0)
    found, expected = first_come(desk.view(1.0)), FirstCome().decide(desk.view(1.0))
    assert (found.ready.tolist(), found.unit.tolist()) == (expected.ready.tolist(), expected.unit.tolist())
    assert len(found.ready) == 3


class Wrong:
    """Raises, or wants what cannot be."""

    name = "wrong"
    period = 0.0

    def __init__(self, dispatch: Dispatch | None) -> None:
        self._dispatch = dispatch

    def begin(self) -> None:
        """Nothing is kept."""

    def decide(self, view: SystemView) -> Dispatch:
        if self._dispatch is None:
            raise ZeroDivisionError
        return self._dispatch


class EchoLink:
    """Answers what it is sent."""

    def __init__(self) -> None:
        self.hear: Any = None

    def send(self, header: dict[str, Any], *parts: bytes | memoryview) -> None:
        answer = {"say": "end", "number": header["number"], "seconds": 0.0, "outputs": []}
        asyncio.get_running_loop().call_soon(self.hear, answer, memoryview(b"".join(parts)))


def gateway(folder: Path, policy: RequestPolicy) -> Gateway:
    (folder / "m.onnx").touch()
    path = folder / "serve.toml"
    path.write_text(
        f'[[model]]\nname = "m"\nonnx = "m.onnx"\n[[unit]]\nname = "u"\n'
        f'[[tenant]]\nname = "t"\nkeys = ["{digest_of("x")}"]\n'
    )
    plan = read_config(path)
    desk = RequestQueue(system_of(plan), estimates_of(plan, {}), 1, 10, 10.0)
    return Gateway(plan, desk, policy, ServingMeters(["t"], ["m"]))


async def asked(hub: Gateway) -> WorkerAnswer:
    answer: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
    hub.ask(
        ArrivedRequest(0, 0, math.inf, 1.0),
        {"model": "m"},
        [b"abc"],
        answer,
        BudgetReservation(MemoryBudget(1 << 20), 0),
    )
    return await answer


@pytest.mark.parametrize("dispatch", [None, Dispatch(np.array([7], np.int32), np.array([0], np.int32))])
def test_a_policy_that_fails_is_replaced_by_first_come_first_served(
    tmp_path: Path, dispatch: Dispatch | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> bytes:
        hub, link = gateway(tmp_path, Wrong(dispatch)), EchoLink()
        signature: dict[str, Any] = {"inputs": [], "outputs": [], "seconds": 0.1}
        hub.came(Seat("u", "here", None, (), {}, (0,)), link, {"m": signature})  # type: ignore[arg-type]
        answer = await asked(hub)
        assert hub.idle
        return bytes(answer.data)

    assert asyncio.run(ask()) == b"abc"
    assert "first come, first served" in caplog.text


class Patient:
    """Sends no request anywhere before its third call."""

    name = "patient"

    def __init__(self, period: float) -> None:
        self.period, self.asked = period, 0

    def begin(self) -> None:
        self.asked = 0

    def decide(self, view: SystemView) -> Dispatch:
        self.asked += 1
        return first_come(view) if self.asked >= 3 else Dispatch(np.zeros(0, np.int32), np.zeros(0, np.int32))


async def answered_by(folder: Path, policy: RequestPolicy, requests: int) -> Gateway:
    """One unit, so that requests wait for each other; what goes wrong within the loop is raised."""
    wrong = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    hub, link = gateway(folder, policy), EchoLink()
    hub.came(Seat("u", "here", None, (), {}, (0,)), link, {"m": {"inputs": [], "outputs": [], "seconds": 0.1}})  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(asked(hub) for _ in range(requests)))
    assert [bytes(answer.data) for answer in answers] == [b"abc"] * requests
    assert not wrong
    return hub


def test_a_policy_with_a_period_is_asked_again_though_nothing_happens(tmp_path: Path) -> None:
    policy = Patient(period=0.01)
    asyncio.run(answered_by(tmp_path, policy, 1))
    assert policy.asked == 3


def exposed(hub: Gateway, name: str) -> float:
    text = hub.meters.expose("text/plain")[0].decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"mirage_serving_{name} "))


@pytest.mark.parametrize("name", ["edf", "listed"])
def test_what_a_policy_takes_is_counted_in_time_and_energy(tmp_path: Path, name: str) -> None:
    hub = asyncio.run(answered_by(tmp_path, request_policy(name), 8))
    assert exposed(hub, "decision_seconds_count") >= 8
    assert exposed(hub, "decision_joules_total") == pytest.approx(5.0 * exposed(hub, "decision_seconds_sum"))
    assert exposed(hub, "policy_faults_total") == 0


@pytest.mark.parametrize("kind", ["relmas", "odra"])
def test_agents_that_score_once_a_period_answer_every_request(tmp_path: Path, kind: str) -> None:
    torch = pytest.importorskip("torch", reason="training needs torch")
    pytest.importorskip("onnx", reason="agents are exported by onnx")
    from mirage.allocation.inference.relmas import Matching, write_agent
    from mirage.training.relmas.ddpg import Actor, RelmasShape, graph_of

    torch.manual_seed(1)
    actor = Actor(RelmasShape())
    with torch.no_grad():
        for weight in actor.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    folder = write_agent(tmp_path / kind, kind, graph_of(actor), Matching(), {}, {}, 1e-4)
    desk = make_desk(most=1000)
    for unit in range(4):
        desk.raise_unit(unit)
    assert sorted(play(desk, request_policy(f"{kind}:{folder}"), 120)) == list(range(120))
    hub = asyncio.run(answered_by(tmp_path, request_policy(f"{kind}:{folder}"), 8))
    assert exposed(hub, "policy_faults_total") == 0
