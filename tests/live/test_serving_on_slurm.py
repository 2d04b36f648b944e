"""A gateway on the accelerators of a real Slurm's nodes, and the hand-over from one link's to the next's."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from allocation_link import PATIENCE, Work

from mirage.allocation.inference.serving.configfile import digest_of

if TYPE_CHECKING:
    from slurm_testbed import Testbed

pytest.importorskip("onnxruntime")
sys.path.insert(0, str(Path(__file__).parents[1] / "inference"))  # the small models of the gateway's own tests

KEY = "a-tenant-of-the-testbed"
TEXT = f"""
[gateway]
listen = "127.0.0.1:0"
policy = "edf"
state = "state"
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "npu"
device = "npu"
count = 2
[[unit]]
name = "host"
[[tenant]]
name = "tenant"
keys = ["{digest_of(KEY)}"]
deadline = "1s"
"""
LINK = ("-pnpu", "-N1", "--ntasks-per-node=1", "-c8", "--gres=npu:ascend:4", "-t30", "--signal=B:USR1@120")
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})


class Client:
    """Asks the front on and on, a connection for each request."""

    def __init__(self, url: str) -> None:
        self._address = url.removeprefix("http://")
        self.answers: list[tuple[int | str, str]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            connection = http.client.HTTPConnection(self._address, timeout=PATIENCE)
            try:
                connection.request("POST", "/v2/models/scale/infer", BODY, {"Authorization": f"Bearer {KEY}"})
                response = connection.getresponse()
                self.answers.append((response.status, response.headers.get("X-Mirage-Unit", "")))
                response.read()
            except (OSError, http.client.HTTPException) as error:
                self.answers.append((repr(error), ""))
            finally:
                connection.close()


def address(work: Work) -> str:
    try:
        return str(json.loads((work.folder / "state" / "address.json").read_text())["url"])
    except OSError:
        return ""


def test_a_link_hands_its_gateway_over_to_the_next_and_no_request_fails(
    real_clock_testbed: Testbed, tmp_path: Path
) -> None:
    from serving_models import write_scale

    write_scale(tmp_path / "scale.onnx")
    (tmp_path / "serve.toml").write_text(TEXT)
    work = Work(tmp_path, real_clock_testbed)
    script = f"exec {sys.executable} -m mirage allocation serve {tmp_path}/serve.toml"
    first = work.submit(script, *LINK)
    work.wait(lambda: address(work), "the first gateway to be ready")
    before = address(work)
    argv = [sys.executable, "-m", "mirage", "allocation", "front", str(tmp_path / "state"), "--listen=127.0.0.1:0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as front:
        assert front.stderr is not None
        found = re.search(r"http://\S+", front.stderr.readline())
        assert found
        client = Client(found[0])
        work.wait(lambda: len(client.answers) > 50, "answers")
        second = work.submit(script, *LINK)
        work.wait(lambda: address(work) != before, "the hand-over")
        work.wait(lambda: work.ended(first), "the first link's end")
        count = len(client.answers)
        work.wait(lambda: len(client.answers) > count + 50, "answers of the second alone")
        client.stop()
        front.send_signal(signal.SIGTERM)
        assert front.wait(PATIENCE) == 0
    assert {status for status, _ in client.answers} == {200}, work.said()
    assert {unit.rstrip("01") for _, unit in client.answers} <= {"npu", "host"}
    assert "passes requests on to us and drains" in work.said()
    real_clock_testbed.run("root", ["scancel", "--signal=TERM", "--batch", str(second)])
    work.wait(lambda: work.ended(second), "the second link's end")
