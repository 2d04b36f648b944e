"""The load generator: as many requests as its rate says, each counted from when it was due."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from mirage.allocation.inference.serving.load_client import LoadPlan, NoTarget, drive, summarize
from mirage.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

STALL = 0.4


class Gateway(BaseHTTPRequestHandler):
    """Answers immediately, except one request that stalls; in chunks where its model is named so."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        if self.headers["Authorization"] != "Bearer key":
            self.reply(401, b'{"error": "invalid API key"}')
        else:
            signature = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
            self.reply(200, json.dumps({"inputs": [signature]}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert body.endswith(b"\x00\x00\x80?" * 4), "four ones"
        type(self).asked += 1
        if type(self).asked == 60:
            time.sleep(STALL)
        self.reply(503 if "full" in self.path else 200, b"answer")

    def reply(self, status: int, content: bytes) -> None:
        chunked = "chunks" in self.path and self.command == "POST"
        framing = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(content)))
        self.send_response(status)
        self.send_header(*framing)
        self.send_header("X-Mirage-Service-Ms", "0.5")
        self.send_header("X-Mirage-Queue-Ms", "0.25")
        self.end_headers()
        parts = [content[:3], content[3:], b""] if chunked else [content]
        for part in parts:
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if chunked else part)
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Write no access log."""


@pytest.fixture
def url() -> Iterator[str]:
    Gateway.asked = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run(url: str, **more: Any) -> dict[str, Any]:
    plan = LoadPlan(
        url, **{"key": "key", "model": "m", "rate": 100.0, "seconds": 2.0, "deadline_ms": None, "seed": 0} | more
    )
    return summarize(plan, asyncio.run(drive(plan)))


def test_all_are_sent_whether_or_not_answers_come(url: str) -> None:
    found = run(url)
    assert 140 < found["requests"] < 260, "Poisson with mean 200: within more than four standard deviations"
    assert found["statuses"] == {"200": found["requests"]}
    assert found["latency_ms"]["p100"] >= 1000 * STALL
    assert found["served_ms"]["p50"] == 0.5
    assert found["queued_ms"]["p50"] == 0.25
    added = found["latency_ms"]["p50"] - 0.5
    assert found["added_ms"]["p50"] == pytest.approx(added, abs=0.002)


def test_the_same_seed_sends_as_many(url: str) -> None:
    assert run(url, seconds=0.5)["requests"] == run(url, seconds=0.5)["requests"]
    assert run(url, seconds=0.5, seed=1)["requests"] != run(url, seconds=0.5)["requests"]


def test_answers_in_chunks_are_read_to_their_end(url: str) -> None:
    found = run(url, model="chunks", seconds=0.5)
    assert found["answered"] == found["requests"] > 20


def test_refusals_are_told_apart_and_keep_no_deadline(url: str) -> None:
    found = run(url, model="full", seconds=0.5)
    assert (found["statuses"], found["kept"]) == ({"503": found["requests"]}, 0.0)
    assert run(url, seconds=0.5, deadline_ms=0.0001)["kept"] == 0.0
    assert run(url, seconds=0.5, deadline_ms=60_000.0)["kept"] == 1.0


def test_who_is_not_there_or_lets_nobody_in_is_named(url: str) -> None:
    with pytest.raises(NoTarget, match=r"status 401.*invalid API key"):
        run(url, key="other")
    with pytest.raises(NoTarget, match="does not answer"):
        run("http://127.0.0.1:1")
    with contextlib.suppress(ValueError):
        run("nowhere")
        pytest.fail("that is no address")


def test_the_command_prints_one_document_and_wants_a_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["allocation", "load", url, "--model=m", "--rate=50", "--seconds=0.2", "--json"]
    monkeypatch.setenv("MIRAGE_SERVING_KEY", "key")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rate"] == 50
    monkeypatch.delenv("MIRAGE_SERVING_KEY")
    assert "MIRAGE_SERVING_KEY" in str(CliRunner().invoke(app, words).exception)
