"""The gateway at hundreds of requests a second: workers are killed, a tenant asks too much, a thousand connect."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from serving_models import write_scale
from serving_site import KEYS, Site, digest, tensor

from mirage.allocation.inference.serving.load_client import LoadPlan, TimedAnswer, drive, fine_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

SECONDS = 4.0
LIMIT = 1.0
FEW_FILES, MANY = 512, 1000
TEXT = f"""
[queue]
most = 2000
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "cpu"
count = 2
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
concurrent = 2000
[[tenant]]
name = "bob"
keys = ["{digest("bob")}"]
rate = {LIMIT}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Started with few files allowed, as a shell gives them."""
    folder = tmp_path_factory.mktemp("load")
    write_scale(folder / "scale.onnx")
    own, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2 * MANY:
        pytest.skip(f"{most} open files at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, most))
    try:
        site = Site(folder, TEXT).start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(own, 2 * MANY), most))
    yield site
    assert site.stop() == 0, site.said
    resource.setrlimit(resource.RLIMIT_NOFILE, (own, most))


def load(site: Site, who: str, rate: float) -> Awaitable[list[TimedAnswer]]:
    return drive(LoadPlan(site.url, KEYS[who], "scale", rate, SECONDS, None, 0))


async def killing(site: Site, *units: str) -> None:
    await asyncio.sleep(SECONDS / 4)
    for unit in units:
        os.kill(worker(site, unit), signal.SIGKILL)


def worker(site: Site, unit: str) -> int:
    """The process that stands on the unit: what it was started with names unit and directory."""
    wanted = (f"MIRAGE_SERVING_UNIT={unit}\0", str(site.folder))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().decode(errors="replace")
            program = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if (
            all(each in environment for each in wanted)
            and b"mirage.allocation.inference.serving.worker" in program
        ):
            return int(process.name)
    raise AssertionError(f"no worker on {unit}")


def statuses(told: list[TimedAnswer]) -> Counter[int]:
    return Counter(each.status for each in told)


@pytest.mark.parametrize("units", [("cpu0",), ("cpu0", "cpu1")])
def test_no_request_is_lost_with_the_workers_that_are_killed(site: Site, units: tuple[str, ...]) -> None:
    """But for one that was begun again on the second worker just before that was killed, too: it is rejected."""

    async def play() -> list[TimedAnswer]:
        told, _ = await asyncio.gather(load(site, "alice", 200.0), killing(site, *units))
        return told

    site.wait(lambda: site.metric("unit_up") == 2, "both")
    failures = site.metric("worker_failures_total")
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        told = runner.run(play())
    said = statuses(told)
    assert set(said) <= {200, 502}
    assert said[502] < len(units)
    assert len(told) > 100 * SECONDS
    assert site.metric("worker_failures_total") == failures + len(units)
    site.wait(lambda: site.metric("unit_up") == 2, "both again")


def test_a_tenant_that_asks_too_much_takes_nothing_from_another(site: Site) -> None:
    async def play() -> list[list[TimedAnswer]]:
        return await asyncio.gather(load(site, "alice", 50.0), load(site, "bob", 300.0))

    began = time.monotonic()
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        alice, bob = (statuses(told) for told in runner.run(play()))
    assert set(alice) == {200}
    assert set(bob) == {200, 429}
    assert bob[200] <= LIMIT * (1.0 + time.monotonic() - began), "a second's worth immediately, and then its rate"
    assert site.metric("refused_total", tenant="alice") == 0
    assert site.metric("refused_total", tenant="bob", status="429") >= bob[429]


def test_a_thousand_connections_are_answered_each(site: Site) -> None:
    body = json.dumps(tensor([1, 2, 3, 4]))
    head = f"POST /v2/models/scale/infer HTTP/1.1\r\nAuthorization: Bearer {KEYS['alice']}\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    host, _, port = site.url.removeprefix("http://").rpartition(":")
    connections = [socket.create_connection((host, int(port)), 60) for _ in range(MANY)]
    try:
        for connection in connections:
            connection.sendall(request)
        for connection in connections:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        assert site.infer("scale").status == 200
    finally:
        for connection in connections:
            connection.close()
