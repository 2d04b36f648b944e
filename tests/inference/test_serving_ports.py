"""The port of a model's own server: only what the server's user listens with is ever asked."""

from __future__ import annotations

import http.client
import os
import pwd
import socket
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirage.allocation.inference.serving.serverwatch import ServerWatch
from mirage.allocation.inference.serving.worker_connections import receive
from mirage.client.listener import listening_users, users_at

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = Path(__file__).with_name("fake_openai.py")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root listens as another user")
NOBODY = pwd.getpwnam("nobody").pw_uid
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
CHARGE = "00000000:00000000 00:00000000 00000000"
ASKED = {"number": 1, "path": "/v1/completions", "stream": False}
BODY = b'{"model": "counter", "prompt": "secret"}'

THIEF = """
import encodings.idna, http.server, os, sys
port, folder, uid = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
class Forging(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers, file=heard, flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_POST = do_GET
heard = open(folder + "/heard", "w")
os.setuid(uid)
server = http.server.HTTPServer(("127.0.0.1", port), Forging)
server.serve_forever()
"""
"""Another user, who listens on ``port``."""


def row(address: str, state: str, uid: int) -> str:
    return f"   0: {address} 00000000:0000 {state} {CHARGE} {uid:5d}        0 6172325 1 0 100 0 0 10 0\n"


@pytest.mark.parametrize(
    ("address", "state", "users"),
    [
        ("0100007F:1F90", "0A", {1008}),
        ("00000000:1F90", "0A", {1008}),
        ("00000000000000000000000000000000:1F90", "0A", {1008}),
        ("0000000000000000FFFF00000100007F:1F90", "0A", {1008}),
        ("0100007F:1F91", "0A", set()),  # another port
        ("0100007F:1F90", "01", set()),  # a connection
        ("0200000A:1F90", "0A", set()),  # 10.0.0.2
    ],
)
def test_users_at_port_are_those_of_its_listeners(address: str, state: str, users: set[int]) -> None:
    assert users_at(HEAD + row(address, state, 1008), 0x1F90) == users


def test_users_at_port_of_several_are_all_of_them() -> None:
    table = HEAD + row("0100007F:1F90", "0A", 1008) + row("00000000:1F90", "0A", 1009) + "\n   2: cut\n"
    assert users_at(table, 0x1F90) == {1008, 1009}


def test_listening_users_of_an_own_socket_are_oneself() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert listening_users(port) == set()
        probe.listen()
        assert listening_users(port) == {os.geteuid()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a backend says what it does; the thief that it has started ends with the test."""
    (tmp_path / "thief.py").write_text(THIEF)
    yield tmp_path
    if (tmp_path / "pid").exists():
        with suppress(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 9)


@contextmanager
def watched(place: Path, first: str) -> Iterator[tuple[ServerWatch, socket.socket]]:
    """A server whose first start does as ``first`` says, and later ones serve."""
    backend = place / "backend.py"
    backend.write_text(
        "import os, runpy, subprocess, sys, time\n"
        f"folder, nobody, server = {str(place)!r}, '{NOBODY}', {str(SERVER)!r}\n"
        "print(sys.argv[1], file=open(folder + '/ports', 'a'))\n"
        "def steal():\n"
        "    child = subprocess.Popen([sys.executable, folder + '/thief.py', sys.argv[1], folder, nobody])\n"
        "    print(child.pid, file=open(folder + '/pid', 'w'))\n"
        "if not os.path.exists(folder + '/began'):\n"
        "    open(folder + '/began', 'w').close()\n"
        f"    {first}\n"
        "sys.argv[2:] = [folder]\n"
        "runpy.run_path(server, run_name='__main__')\n"
    )
    near, far = socket.socketpair()
    far.settimeout(30.0)
    setup = {"models": [{"name": "counter", "backend": [sys.executable, str(backend), "{port}"]}], "slots": 1}
    with near, far, ServerWatch(near, setup) as watch:
        watch.wait_until_ready()
        yield watch, far


def told(far: socket.socket) -> tuple[dict[str, Any], memoryview]:
    """The next word about a request."""
    while True:
        header, content = receive(far)
        if header["say"] != "alive":
            return header, content


def test_server_on_its_own_port_is_asked(place: Path) -> None:
    with watched(place, "pass") as (watch, far):
        watch.take(ASKED, memoryview(BODY))
        header, content = told(far)
    assert (header["http"], b"01234" in bytes(content)) == (200, True)
    assert len((place / "ports").read_text().split()) == 1


def asked_by_another(port: int, key: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status
    finally:
        connection.close()


NOTE_KEYS = "print(os.environ['MIRAGE_BACKEND_KEY'], os.environ['VLLM_API_KEY'], file=open(folder + '/keys', 'a'))"


def test_server_refuses_who_lacks_its_key(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIRAGE_BACKEND_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    statuses = []
    for _ in range(2):
        (place / "began").unlink(missing_ok=True)
        with watched(place, NOTE_KEYS):
            port = int((place / "ports").read_text().split()[-1])
            key = (place / "keys").read_text().split()[-1]
            statuses += [asked_by_another(port, "guessed"), asked_by_another(port, key)]
    first, same, second, _ = (place / "keys").read_text().split()
    assert statuses == [401, 200, 401, 200]
    assert first == same != second, "each start has a new key"
    assert len(first) >= 32


def test_server_with_a_key_of_its_user_is_asked_with_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MIRAGE_BACKEND_KEY", raising=False)
    monkeypatch.setenv("VLLM_API_KEY", "chosen")
    with watched(place, NOTE_KEYS):
        assert (place / "keys").read_text().split() == ["chosen", "chosen"]


@AS_ROOT
def test_port_taken_by_another_user_is_not_used(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The thief listens while the server still loads; the next start has another port."""
    with watched(place, "steal(); time.sleep(60)") as (watch, far):
        watch.take(ASKED, memoryview(BODY))
        header, _ = told(far)
    first, second = (place / "ports").read_text().split()
    assert (header["http"], first != second) == (200, True)
    assert f"event=backend_port_taken port={first} uid={NOBODY}" in capfd.readouterr().err
    assert not (place / "heard").read_text(), "the thief received nothing"


@AS_ROOT
def test_port_taken_after_the_start_ends_the_worker(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The server has closed its socket, and lives on."""
    listens = "s = __import__('socket').create_server(('127.0.0.1', int(sys.argv[1])))"
    answer = "c, _ = s.accept(); c.recv(999); c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')"
    with watched(place, f"{listens}; {answer}; s.close(); c.close(); steal(); time.sleep(60)") as (watch, far):
        port = int((place / "ports").read_text())
        end = time.monotonic() + 20
        while NOBODY not in listening_users(port):
            assert time.monotonic() < end
            time.sleep(0.05)
        watch.take(ASKED, memoryview(BODY))
        with pytest.raises(EOFError):
            told(far)
    assert f"event=backend_port_taken port={port} uid={NOBODY}" in capfd.readouterr().err
    assert not (place / "heard").read_text()
