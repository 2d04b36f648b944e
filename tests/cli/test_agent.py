"""``mirage agent`` outlives its daemon's restarts, and every answer that may be another one next time."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest
from api_world import world

from mirage.api.server import ApiServer
from mirage.backends.agent_queue import AgentQueue
from mirage.backends.agent_requests import AgentRequest, AgentResponse, CancelJob, Verdict
from mirage.backends.user_side import _END
from mirage.cli import agent
from mirage.client.client import Client
from mirage.client.errors import DaemonUnreachable, Refusal
from mirage.domain.job import JobId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

ORDER = AgentRequest.of(CancelJob(JobId(7)), "alice", 0)
DENIED = (403, b'{"detail": "no"}')
NONE = (204, b"")
GIVEN = (200, ORDER.to_text().encode())
PASSING = {
    "internal-error": (500, b'{"detail": "the daemon has failed to answer"}'),
    "standing-by": (503, b'{"detail": "this daemon does not act now"}'),
    "too-often": (429, b'{"detail": "wait"}'),
    "proxy": (502, b"<html>Bad Gateway</html>"),
    "gateway-timeout": (504, b""),
    "gone": (404, b"<html>no such page</html>"),
    "broken": (200, b'{"order_id": "x'),
    "no-object": (200, b"[]"),
    "no-order": (200, b"{}"),
    "no-text": (200, b"\xff\xfe"),
    "empty": (200, b""),
    "cut-off": None,
}


@dataclass
class Daemon:
    """Gives these answers, in this order; ``None`` closes the connection."""

    answers: list[tuple[int, bytes] | None]
    taken: list[str] = field(default_factory=list)
    delivered: list[AgentResponse] = field(default_factory=list)


@contextmanager
def serving(daemon: Daemon, path: Path) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.give()

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            if self.give() == 200:
                daemon.delivered.append(AgentResponse.from_text(text))

        def give(self) -> int:
            daemon.taken.append(self.command)
            answer = daemon.answers.pop(0)
            if answer is None:
                return 0
            status, content = answer
            self.send_response(status)
            if content or status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return status

        def log_message(self, *_: object) -> None:
            pass

        def address_string(self) -> str:
            return "socket"

    with socketserver.UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield str(path)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(agent, "_LONGEST_PAUSE", 0.02)


def serve(address: str, *, once: bool = False) -> None:
    agent._serve(Client(address), lambda order: AgentResponse(Verdict.DONE, text=order.order_id), once=once)


@pytest.mark.parametrize("passing", PASSING.values(), ids=PASSING.keys())
def test_agent_goes_on_after_an_answer_that_may_pass(tmp_path: Path, passing: tuple[int, bytes] | None) -> None:
    daemon = Daemon([NONE, passing, passing, passing, GIVEN, (200, b"{}"), DENIED])
    with serving(daemon, tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address)
    assert [answer.text for answer in daemon.delivered] == [ORDER.order_id]
    assert daemon.answers == []


@pytest.mark.parametrize("passing", [PASSING["standing-by"], PASSING["too-often"], PASSING["proxy"]])
def test_agent_waits_for_a_daemon_that_is_busy_at_first(tmp_path: Path, passing: tuple[int, bytes]) -> None:
    daemon = Daemon([passing, None, GIVEN, passing, (200, b"{}"), DENIED])
    with serving(daemon, tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address)
    assert len(daemon.delivered) == 1


def test_agent_waits_for_a_daemon_that_goes_away_before_its_first_answer(tmp_path: Path) -> None:
    daemon = Daemon([None, None, GIVEN, (200, b"{}"), DENIED])
    with serving(daemon, tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address)
    assert len(daemon.delivered) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_agent_that_is_denied_ends(tmp_path: Path, status: int) -> None:
    for answers in ([(status, b"{}")], [NONE, (status, b"{}")], [GIVEN, (status, b"{}")]):
        daemon = Daemon([*answers])
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sock"
        with serving(daemon, path) as address, pytest.raises(Refusal):
            serve(address)
        assert daemon.answers == []


def test_agent_without_a_daemon_ends_at_first(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachable):
        serve(str(tmp_path / "none.sock"))
    for answer in ((404, b"<html>"), (200, b"no JSON")):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sock"
        with serving(Daemon([answer]), path) as address, pytest.raises((DaemonUnreachable, Refusal)):
            serve(address)


def test_answer_that_the_daemon_does_not_take_is_dropped(tmp_path: Path) -> None:
    daemon = Daemon([GIVEN, (422, b"{}"), GIVEN, (200, b"{}"), DENIED])
    with serving(daemon, tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address)
    assert len(daemon.delivered) == 1


def test_answer_is_delivered_once_the_daemon_takes_it(tmp_path: Path) -> None:
    daemon = Daemon([GIVEN, PASSING["internal-error"], None, PASSING["too-often"], (200, b"{}"), DENIED])
    with serving(daemon, tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address)
    assert len(daemon.delivered) == 1


def test_order_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    newer = json.loads(ORDER.to_text()) | {"since": "a newer daemon"}
    impossible = json.loads(ORDER.to_text()) | {"cancel": {"job_id": -5}}
    orders = [(200, json.dumps(document).encode()) for document in (newer, impossible)]
    daemon = Daemon([NONE, orders[0], (200, b"{}"), orders[1], (200, b"{}"), GIVEN, (200, b"{}"), DENIED])
    with serving(daemon, tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address)
    assert [answer.verdict for answer in daemon.delivered] == [
        Verdict.NOT_PERMITTED,
        Verdict.NOT_PERMITTED,
        Verdict.DONE,
    ]


def test_agent_asked_once_reports_any_failure(tmp_path: Path) -> None:
    with serving(Daemon([PASSING["internal-error"]]), tmp_path / "sock") as address, pytest.raises(Refusal):
        serve(address, once=True)


SLOW = """#!/bin/sh
echo began >>{folder}/began
sleep 2
echo ended >>{folder}/ended
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_agent_that_is_told_to_end_answers_the_order_under_way_first(tmp_path: Path, number: int) -> None:
    own = pwd.getpwuid(os.getuid()).pw_name
    shown = f"7 {own} 1795780800 RUNNING mirage:web:1{_END}"
    for name, text in (("scancel", SLOW.format(folder=tmp_path)), ("squeue", f"#!/bin/sh\necho '{shown}'\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    fresh = AgentRequest.of(CancelJob(JobId(7)), own, round(time.time()) + 600)  # ``ORDER`` comes too late
    daemon = Daemon([(200, fresh.to_text().encode()), (200, b"{}"), *[NONE] * 50])
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with serving(daemon, tmp_path / "api.sock") as address:
        # A test run in the background ignores SIGINT, and so would what it starts.
        command = ["env", "--default-signal=INT", sys.executable, "-m", "mirage", "agent", "--socket", address]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            for _ in range(3_000):
                if (tmp_path / "began").exists():
                    break
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
    assert daemon.taken == ["GET", "POST"], "no further order is fetched"
    assert len(daemon.delivered) == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_agent_without_an_order_ends_at_once(number: int, status: int) -> None:
    with pytest.raises(SystemExit) as ended:
        agent._Ending().told(number)
    assert ended.value.code == status


def test_agent_told_twice_ends_whatever_is_under_way() -> None:
    ending = agent._Ending()
    with ending.order():
        ending.told(signal.SIGTERM)
        with pytest.raises(SystemExit):
            ending.told(signal.SIGTERM)
        ending.wanted = False


def test_agent_serves_the_daemon_after_its_restarts(world: World) -> None:
    path = world.socket.parent / "again.sock"
    me = pwd.getpwuid(os.getuid()).pw_name
    ended: list[Refusal] = []

    def run() -> None:
        try:
            serve(str(path))
        except Refusal as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    for desk in (AgentQueue(_unawaited), AgentQueue(_unawaited), AgentQueue(_unawaited)):
        server = ApiServer(replace(world.service, desk=desk), path)
        server.start()
        if not thread.is_alive():
            thread.start()
        while not desk.attached(me):
            time.sleep(0.01)
        assert desk.ask(me, CancelJob(JobId(7))).verdict is Verdict.DONE
        server.stop()
    server = ApiServer(replace(world.service, desk=None), path)
    server.start()
    thread.join(60)
    server.stop()
    assert [error.status for error in ended] == [403]


def _unawaited(owner: str, order_id: str, answer: AgentResponse) -> None:
    raise AssertionError(f"{owner}: nobody waits for {order_id}: {answer}")
