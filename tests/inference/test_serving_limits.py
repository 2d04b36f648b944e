"""Requests of one tenant are bounded before work is done for them: the gateway continues for all others."""

from __future__ import annotations

import asyncio
import json
import os
import select
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from serving_models import write_scale
from serving_site import KEYS, Reply, Site, digest

from mirage.allocation.inference.serving import front
from mirage.allocation.inference.serving.addressbook import GatewayStateFolder
from mirage.allocation.inference.serving.admission import MemoryBudget, RequestRefused
from mirage.allocation.inference.serving.service import JsonThread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPConnection

TEXT = f"""
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "cpu"
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
[[tenant]]
name = "bob"
keys = ["{digest("bob")}"]
rate = 1
"""
INFER = "/v2/models/scale/infer"
MIB = 1 << 20


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("limits")
    write_scale(folder / "scale.onnx")
    site = Site(folder, TEXT, gateway="all_bodies_mb = 32")
    yield site.start()
    assert site.stop() == 0, site.said


def cpu_seconds(site: Site) -> float:
    """The number that the gateway has taken so far."""
    assert site.process is not None
    fields = Path(f"/proc/{site.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def with_data(data: str, shape: str = "[1,4]") -> bytes:
    return f'{{"inputs":[{{"name":"x","datatype":"FP32","shape":{shape},"data":{data}}}]}}'.encode()


def many(part: str, size: int) -> str:
    """``part`` repeatedly, in brackets."""
    return "[" + ",".join([part] * (size // (len(part) + 1))) + "]"


INPUT = '{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}'
BODIES = {
    "sizes of 4000 digits": with_data("[1]", many("9" * 4_000, MIB)),
    "many sizes": with_data("[1]", many("9", 100_000)),
    "one long text": with_data('["' + "x" * 8_000 + '"' + ",1" * 60_000 + "]"),
    "lists": with_data(many("[]", 15 * MIB)),
    "objects": with_data(many('{"a":1}', 15 * MIB)),
    "numbers": with_data(many("1.5", 15 * MIB)),
    "texts": with_data(many('""', 15 * MIB)),
    "inputs": f'{{"inputs":{many(INPUT, 15 * MIB)}}}'.encode(),
    "numbers of 4000 digits": with_data(many("9" * 4_000, 15 * MIB)),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_hostile_json_costs_little_time_and_memory(site: Site, body: bytes) -> None:
    assert site.infer("scale").status == 200
    time, memory = cpu_seconds(site), site.most_memory
    assert site.ask("POST", INFER, body).status == 400
    assert cpu_seconds(site) - time < 1.5
    assert site.most_memory - memory < 200 * MIB


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_hostile_json_for_a_text_model_costs_little(site: Site, path: str) -> None:
    time = cpu_seconds(site)
    body = f'{{"model":"scale","messages":{many("[]", 15 * MIB)}}}'.encode()
    assert site.ask("POST", path, body).status == 400
    assert cpu_seconds(site) - time < 1.5


@pytest.mark.parametrize("deadline", ["9" * 400, "[1]", '"' + "x" * 100_000 + '"'])
def test_deadline_that_is_no_number_of_milliseconds_is_rejected(site: Site, deadline: str) -> None:
    reply = site.ask("POST", INFER, f'{{"inputs":[{INPUT}],"parameters":{{"deadline_ms":{deadline}}}}}'.encode())
    assert (reply.status, len(reply.body) < 300) == (400, True)


def padded(size: int) -> bytes:
    """A good request of ``size`` bytes."""
    return with_data("[1,2,3,4]").ljust(size)


def test_json_is_charged_by_its_size(site: Site) -> None:
    assert site.infer("scale", who="bob").status == 200
    site.wait(lambda: site.infer("scale", who="bob").status == 200, "another second")
    site.wait(lambda: site.ask("POST", INFER, padded(MIB), who="bob").status == 200, "another second")
    later = site.infer("scale", who="bob")
    assert (later.status, 5 < int(later.headers["retry-after"]) <= 9) == (429, True)


def test_bytes_behind_json_are_not_charged(site: Site) -> None:
    reply, _ = ask_in_bytes(site, 4_000, binary=True)
    assert (reply.status, len(reply.body) > 64_000) == (200, True)


@pytest.mark.parametrize("rows", [10, 2_000, 40_000])
def test_large_answer_in_json_is_written_whole(site: Site, rows: int) -> None:
    reply, values = ask_in_bytes(site, rows, binary=False)
    assert reply.values == (2 * values).reshape(-1).tolist()


def test_answer_of_too_many_numbers_in_json_is_rejected(site: Site) -> None:
    time = cpu_seconds(site)
    reply, _ = ask_in_bytes(site, 500_000, binary=False)
    assert (reply.status, "binary_data" in reply.document["error"]) == (400, True)
    assert cpu_seconds(site) - time < 1.5


def ask_in_bytes(site: Site, rows: int, *, binary: bool) -> tuple[Reply, np.ndarray]:
    values = np.arange(4 * rows, dtype="<f4").reshape(rows, 4)
    size = {"parameters": {"binary_data_size": values.nbytes}}
    x = {"name": "x", "datatype": "FP32", "shape": [rows, 4], **size}
    head = json.dumps({"inputs": [x], "parameters": {"binary_data_output": binary}}).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    return site.ask("POST", INFER, head + values.tobytes(), **length), values


def half_sent(site: Site) -> HTTPConnection | None:
    """One that holds half of all bytes; ``None`` where the request after it came first, and it was rejected."""
    slow = site.connect()
    slow.putrequest("POST", INFER)
    slow.putheader("Authorization", f"Bearer {KEYS['alice']}")
    slow.putheader("Content-Length", str(16 * MIB))
    with suppress(ConnectionError):
        slow.endheaders(padded(16 * MIB - 1))
        while not select.select([slow.sock], [], [], 0.05)[0]:
            if site.ask("POST", INFER, padded(MIB)).status == 503:
                return slow
    slow.close()
    return None


def test_bytes_of_all_requests_are_bounded_and_shared(site: Site) -> None:
    """Of 32 MiB, half are held by a client that sends one body except its last byte."""
    while (slow := half_sent(site)) is None:
        pass
    full = site.ask("POST", INFER, padded(MIB))
    assert (full.status, "too much memory" in full.document["error"], full.headers["retry-after"]) == (
        503,
        True,
        "1",
    )
    site.wait(lambda: site.ask("POST", INFER, padded(8 * MIB), who="bob").status == 200, "bob to be let in")
    slow.send(b" ")
    assert slow.getresponse().status == 200
    slow.close()
    assert site.ask("POST", INFER, padded(16 * MIB)).status == 200


def test_sender_holds_at_most_what_is_left_free() -> None:
    budget = MemoryBudget(100)
    with budget.reserved("a") as first:
        first.resize(50)
        with pytest.raises(RequestRefused):
            first.resize(51)
        with budget.reserved("b") as second, budget.reserved("a") as third:
            with pytest.raises(RequestRefused):
                third.resize(1)
            second.resize(25)
            with pytest.raises(RequestRefused):
                second.resize(26)
            first.resize(30)
            third.resize(7)
    with budget.reserved("c") as last:
        last.resize(50)


def test_owners_take_turns_in_the_thread_for_json() -> None:
    order = list[str]()

    def note(owner: str) -> str:
        order.append(owner)
        return owner

    def fail() -> None:
        raise ValueError("no")

    async def run() -> None:
        thread, gate = JsonThread(), threading.Event()
        first = asyncio.ensure_future(thread.run("a", gate.wait))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(thread.run(owner, partial(note, owner))) for owner in "aaabbc"]
        await asyncio.sleep(0)
        others[1].cancel()
        bad = asyncio.ensure_future(thread.run("c", fail))
        gate.set()
        await first
        found = await asyncio.gather(*others, bad, return_exceptions=True)
        assert isinstance(found[1], asyncio.CancelledError)
        assert isinstance(found[-1], ValueError)
        assert await thread.run("d", partial(note, "d")) == "d"
        thread.close()

    asyncio.run(run())
    assert "".join(order) == "abcabd"


def test_requests_of_one_client_at_a_front_leave_places_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no gateway: all of them wait for one."""
    monkeypatch.setattr(front, "most_connections", lambda: 30)
    asked = front.Front(GatewayStateFolder(tmp_path), 30.0, MIB)

    async def ask(address: str, said: list[int]) -> None:
        scope = {"type": "http", "method": "GET", "path": "/v2", "query_string": b"", "headers": []}
        whole = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            return whole.pop() if whole else await asyncio.get_running_loop().create_future()

        async def send(message: dict[str, Any]) -> None:
            said.extend([message["status"]] if "status" in message else [])

        await asked({**scope, "client": (address, 1), "raw_path": b"/v2"}, receive, send)

    async def scene() -> tuple[list[int], list[int]]:
        one, other = list[int](), list[int]()
        tasks = [asyncio.create_task(ask("10.0.0.1", one)) for _ in range(40)]
        tasks += [asyncio.create_task(ask("10.0.0.2", other)) for _ in range(5)]
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return one, other

    one, other = asyncio.run(scene())
    assert one == [503] * 25, "half of all places are left"
    assert other == [], "all of them wait"
