"""From one gateway to the next under load: no failed request, at the reverse proxy or at the old address."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from serving_models import write_scale
from serving_site import KEYS, PATIENCE, Site, digest, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = f"""
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "NAME"
count = 2
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
"""


def gateway(folder: Path, name: str) -> Site:
    """``name``: of its units, so that it is seen who has answered."""
    write_scale(folder / "scale.onnx")
    return Site(folder, TEXT.replace("NAME", name))


@dataclass
class Front:
    process: subprocess.Popen[str]
    url: str


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Front]:
    argv = [sys.executable, "-m", "mirage", "allocation", "front", str(tmp_path / "state"), "--listen=127.0.0.1:0"]
    with subprocess.Popen([*argv, "--patience=60"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"http://\S+", process.stderr.readline())
        assert found
        yield Front(process, found[0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@dataclass
class Client:
    """Asks one address on and on, over a kept connection, until it is stopped."""

    url: str
    statuses: list[int | str] = field(default_factory=list)
    units: set[str] = field(default_factory=set)
    stopping: bool = False

    def run(self) -> None:
        body = json.dumps(tensor([1, 2, 3, 4]))
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)
        while not self.stopping:
            try:
                headers = {"Authorization": f"Bearer {KEYS['alice']}"}
                connection.request("POST", "/v2/models/scale/infer", body, headers)
                response = connection.getresponse()
                self.units.add(response.headers.get("X-Mirage-Unit", "").rstrip("0123456789"))
                response.read()
                self.statuses.append(response.status)
            except (OSError, http.client.HTTPException) as error:
                self.statuses.append(repr(error))
                connection.close()
            time.sleep(0.005)
        connection.close()


def asking(*urls: str) -> list[tuple[Client, threading.Thread]]:
    clients = [Client(url) for url in urls]
    pairs = [(client, threading.Thread(target=client.run, daemon=True)) for client in clients]
    for _, thread in pairs:
        thread.start()
    return pairs


def stop(pairs: list[tuple[Client, threading.Thread]]) -> list[Client]:
    for client, _ in pairs:
        client.stopping = True
    for _, thread in pairs:
        thread.join()
    return [client for client, _ in pairs]


def test_a_successor_takes_over_under_load_and_no_request_fails(tmp_path: Path, front: Front) -> None:
    first = gateway(tmp_path, "old").start()
    by_front, by_old_address = asking(front.url, front.url), asking(first.url)
    time.sleep(1)
    second = gateway(tmp_path, "new").start()
    second.wait(lambda: "forwards its requests to this gateway and drains" in second.said, "the handover")
    time.sleep(1)
    direct = stop(by_old_address)
    assert first.process is not None
    assert first.process.wait(PATIENCE) == 0, first.said
    time.sleep(1)
    fronted = stop(by_front)
    for client in (*direct, *fronted):
        assert set(client.statuses) == {200}, client.statuses
        assert client.units == {"old", "new"}
    assert second.stop() == 0
    assert "new requests are rejected" in second.said


def test_requests_wait_at_the_front_while_a_gateway_that_was_killed_is_started_again(
    tmp_path: Path, front: Front
) -> None:
    first = gateway(tmp_path, "old").start()
    clients = asking(front.url)
    time.sleep(0.5)
    assert first.stop(by=signal.SIGKILL) == -signal.SIGKILL
    second = gateway(tmp_path, "new").start()
    second.wait(lambda: "is gone" in second.said, "the word")
    time.sleep(1)
    (client,) = stop(clients)
    assert set(client.statuses) == {200}, client.statuses
    assert client.units == {"old", "new"}
    assert second.stop() == 0


def test_what_was_learnt_is_where_the_successor_begins(tmp_path: Path) -> None:
    first = gateway(tmp_path, "same").start()
    assert first.infer("scale").status == 200
    assert first.stop() == 0
    (learnt,) = json.loads((tmp_path / "state" / "learnt.json").read_text()).values()
    assert 0 < learnt["same"] < 1
    mode = (tmp_path / "state" / "address.json").stat().st_mode
    assert mode & 0o077 == 0, "the operator's key in it is for the owner alone"
