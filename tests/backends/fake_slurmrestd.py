"""A fake slurmrestd on loopback or a Unix socket: sends scripted answers and records the requests."""

from __future__ import annotations

import contextlib
import http.server
import json
import socketserver
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Any


@dataclass
class FakeSlurmrestd:
    """``answers`` by path without a trailing slash: a JSON value, (status, JSON), raw bytes, or what to call."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    address: str = ""

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Any

    def log_message(self, *args: Any) -> None:
        """Nothing is logged."""

    def address_string(self) -> str:
        return "client"

    def handle_any(self) -> None:
        fake: FakeSlurmrestd = self.server.fake
        parts = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = parts.path.rstrip("/")
        fake.asked.append(
            Asked(self.command, path, parts.query, dict(self.headers), json.loads(raw) if raw else None)
        )
        answer = fake.answers.get(f"{self.command} {path}", fake.answers.get(path))
        if callable(answer):
            answer(self)
        elif answer is None:
            self.reply(404, b"Unable find requested URL.")
        elif isinstance(answer, bytes):
            self.reply(200, answer)
        else:
            status, value = answer if isinstance(answer, tuple) else (200, answer)
            self.reply(status, value if isinstance(value, bytes) else json.dumps(value).encode())

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - http.server calls them so

    def reply(self, status: int, body: bytes, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[Any, Any]:
        request, _ = super().get_request()
        return request, ("client", 0)


@contextlib.contextmanager
def slurmrestd(socket: Path | None = None) -> Iterator[FakeSlurmrestd]:
    """One that runs while the block does."""
    server: Any
    if socket is None:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        address = f"http://127.0.0.1:{server.server_address[1]}"
    else:
        server = _UnixServer(str(socket), _Handler)
        address = f"unix:{socket}"
    server.fake = FakeSlurmrestd(address=address)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
