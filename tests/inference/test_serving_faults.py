"""Workers that crash, hang or never come: every request still gets its answer, or the reason why not."""

from __future__ import annotations

import json
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from serving_models import write_scale
from serving_site import FAKE_WORKER, KEYS, Site, digest, tensor

from mirage.allocation.inference.serving.worker import main as worker_main

if TYPE_CHECKING:
    from collections.abc import Iterator

MODELS = {"crash-once": 2, "crash": 2, "hang-once": 2, "slow": 1, "refuse": 1, "never-ready": 1}


def config(folder: Path) -> str:
    write_scale(folder / "scale.onnx")
    command = json.dumps([sys.executable, str(FAKE_WORKER), str(folder)])
    text = "[queue]\nmost = 4\nlongest_wait = 4.0\n[workers]\nready_within = 10\nanswer_within = 2\n"
    for model, count in MODELS.items():
        text += f'[[model]]\nname = "{model}"\nonnx = "scale.onnx"\n'
        text += f'[[unit]]\nname = "{model}"\ncount = {count}\nmodels = ["{model}"]\ncommand = {command}\n'
    return text + f'[[tenant]]\nname = "alice"\nkeys = ["{digest("alice")}"]\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("faults")
    site = Site(folder, config(folder)).start(ready=False)
    for model in ("crash-once", "crash", "hang-once", "slow", "refuse"):
        site.wait(lambda: site.get(f"/v2/models/{model}/ready").status == 200, model)  # noqa: B023 - called here
    yield site
    assert site.stop() == 0, site.said


def test_a_crash_in_the_middle_is_repeated_elsewhere(site: Site) -> None:
    assert site.infer("crash-once").values == [2, 4, 6, 8]
    assert (
        site.metric("worker_failures_total", unit="crash-once0")
        + site.metric("worker_failures_total", unit="crash-once1")
        == 1
    )
    assert site.metric("requests_total", model="crash-once", result="failed") == 0
    site.wait(
        lambda: site.metric("unit_up", unit="crash-once0") + site.metric("unit_up", unit="crash-once1") == 2, "it"
    )


def test_who_crashes_every_worker_is_told_after_the_second(site: Site) -> None:
    reply = site.infer("crash")
    assert (reply.status, reply.document["error"]) == (502, "the worker ended while it ran this request")
    assert site.metric("requests_total", model="crash", result="failed") == 1


def test_a_worker_that_hangs_is_ended_and_the_request_answered_elsewhere(site: Site) -> None:
    assert site.infer("hang-once").values == [2, 4, 6, 8]
    assert "the worker hangs" in site.said


def test_a_networks_own_fault_is_told_and_not_repeated(site: Site) -> None:
    reply = site.infer("refuse")
    assert (reply.status, reply.document["error"]) == (500, "the network says no")
    assert site.metric("unit_up", unit="refuse") == 1


def test_a_model_that_no_unit_has_loaded_is_refused_for_now(site: Site) -> None:
    reply = site.infer("never-ready")
    assert (reply.status, "retry-after" in reply.headers) == (503, True)
    assert site.get("/health/ready").status == 503
    site.wait(lambda: "never-ready: the worker was not ready within 10 s" in site.said, "the worker's end")


def test_a_full_queue_refuses_and_what_waits_is_answered(site: Site) -> None:
    with ThreadPoolExecutor(8) as hands:
        replies = list(hands.map(lambda _: site.infer("slow"), range(8)))
    statuses = [reply.status for reply in replies]
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 4, statuses
    assert statuses.count(503) >= 1, statuses
    assert all("retry-after" in reply.headers for reply in replies if reply.status == 503)


def test_who_goes_away_waits_no_more(site: Site) -> None:
    gone = site.metric("requests_total", model="slow", result="gone")
    body = json.dumps(tensor([1, 2, 3, 4]))
    connections = [site.connect() for _ in range(3)]
    for connection in connections:
        connection.request("POST", "/v2/models/slow/infer", body, {"Authorization": f"Bearer {KEYS['alice']}"})
    site.wait(lambda: site.metric("waiting") + site.metric("running") >= 2, "them to wait")
    for connection in connections:
        connection.close()
    site.wait(lambda: site.metric("requests_total", model="slow", result="gone") == gone + 3, "them to be gone")
    assert site.infer("slow").status == 200


def test_a_worker_that_cannot_prove_itself_is_not_let_in(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = [pid for pid in processes() if "MIRAGE_SERVING_GATE" in environ(pid)]
    gate = next(
        line.partition("=")[2]
        for line in environ(workers[0]).split("\0")
        if line.startswith("MIRAGE_SERVING_GATE=")
    )
    for name, value in (("GATE", gate), ("SECRET", "f" * 64), ("UNIT", "slow")):
        monkeypatch.setenv(f"MIRAGE_SERVING_{name}", value)
    assert worker_main() == 1
    assert site.infer("slow").status == 200


def processes() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdecimal()]


def environ(process: Path) -> str:
    try:
        return (process / "environ").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def test_a_signal_lets_those_that_wait_be_answered_and_nobody_else_in(tmp_path: Path) -> None:
    site = Site(tmp_path, config(tmp_path)).start(ready=False)
    site.wait(lambda: site.get("/v2/models/slow/ready").status == 200, "slow")
    with ThreadPoolExecutor(3) as hands:
        waiting = [hands.submit(site.infer, "slow") for _ in range(3)]
        site.wait(lambda: site.metric("running") + site.metric("waiting") == 3, "them to wait")
        assert site.process is not None
        site.process.send_signal(signal.SIGTERM)
        site.wait(lambda: "new requests are rejected" in site.said, "the drain")
        late = site.infer("slow")
        assert (late.status, "retry-after" in late.headers) == (503, True)
        assert [each.result().status for each in waiting] == [200, 200, 200]
    assert site.process.wait(60) == 0
    time.sleep(0.2)
    assert not [pid for pid in processes() if str(tmp_path / "state") in environ(pid)]
