"""The separate server of a model (such as vLLM), which the worker of its unit starts and calls."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.exchanges import WINDOW
from mirage.allocation.inference.serving.worker_connections import LONGEST_BYTES, send, too_large
from mirage.client.deadline import BoundedConnection
from mirage.client.listener import listening_users

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_HOST = "127.0.0.1"
_KEY, _KEY_OF_VLLM = "MIRAGE_BACKEND_KEY", "VLLM_API_KEY"
"""Environment of the server: the key of each request. vLLM requires that key if its variable is set."""
_LOOK = 0.2
_ASK = 5.0
_ALIVE_EVERY = 1.0
"""Seconds between two checks that the server still answers while it runs a request."""
_STATUSES = range(200, 600)
_CHUNK = 1 << 16
_DYING = 1.0
"""Seconds within which it is known whether a server that broke off an answer has ended."""
_GRACE = 10.0


class ServerEnded(Exception):
    """The server ended before it was ready."""


class PortTaken(ConnectionError):
    """Another process listens on the server's port."""


class _Asked:
    """A running request, and the number of bytes of its answer that the client has not taken yet."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._changed = threading.Condition()
        self._under_way = 0
        self._dropped = False
        self.waited = 0.0
        """Seconds for which the client took nothing."""

    def connected(self, to: socket.socket | None) -> None:
        """Raise ``ConnectionAbortedError`` if the client has disconnected."""
        with self._changed:
            self._socket = to
            if self._dropped:
                raise ConnectionAbortedError("the client has disconnected")

    def wait_for_room(self) -> None:
        """Wait until the client takes what was sent. Raises ``ConnectionAbortedError`` if it disconnects."""
        began = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self._dropped or self._under_way < WINDOW)
            if self._dropped:
                raise ConnectionAbortedError("the client has disconnected")
        self.waited += time.perf_counter() - began

    def sent(self, size: int) -> None:
        """Count a sent part."""
        with self._changed:
            self._under_way += size

    def taken(self, size: int) -> None:
        """Count parts that the client has taken."""
        with self._changed:
            self._under_way -= size
            self._changed.notify_all()

    def drop(self) -> None:
        """The client has disconnected: close the server's connection."""
        with self._changed:
            self._dropped = True
            self._changed.notify_all()
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class ServerWatch:
    """Starts the server, forwards requests to it, and ends with it.

    All users of the node can see its port, and the port is free until the server listens. So requests go only to a
    socket that belongs to this process's user, because no other user can create such sockets. For the same reason
    each request carries a key of this start, which the server finds in its environment and may require.
    """

    def __init__(self, connection: socket.socket, setup: Mapping[str, Any]) -> None:
        (self._model,) = setup["models"]
        self._connection = connection
        self._lock = threading.Lock()
        self._hands = ThreadPoolExecutor(int(setup["slots"]), "request")
        self._open = dict[int, _Asked]()
        """Requests that the server runs."""
        self._largest = int(setup.get("largest_answer", LONGEST_BYTES))
        self._key = os.environ.get(_KEY) or os.environ.get(_KEY_OF_VLLM) or addressbook.fresh()
        self._port, self._process = self._start()
        self._signature: dict[str, Any] = {self._model["name"]: {"seconds": None, "inputs": [], "outputs": []}}

    def __enter__(self) -> ServerWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        for asked in list(self._open.values()):
            asked.drop()
        self._hands.shutdown(wait=False, cancel_futures=True)

    def wait_until_ready(self) -> None:
        """Wait until it lists its models. Raises ``ServerEnded``; the gateway sets the timeout.

        If another user took its port first, it is restarted on another port.
        """
        while not self._answers():
            if self._taken():
                self._end()
                self._port, self._process = self._start()
            elif self._process.poll() is not None:
                raise ServerEnded(f"{self._model['backend'][0]} ended with exit code {self._process.returncode}")
            time.sleep(_LOOK)
        threading.Thread(target=self._end_with_it, daemon=True).start()
        threading.Thread(target=self._tell_that_it_lives, daemon=True).start()

    def _start(self) -> tuple[int, subprocess.Popen[bytes]]:
        port = _free_port()
        words = [word.replace("{port}", str(port)) for word in self._model["backend"]]
        environment = {name: value for name, value in os.environ.items() if name != addressbook.SECRET}
        environment |= {_KEY: self._key, _KEY_OF_VLLM: environment.get(_KEY_OF_VLLM) or self._key}
        where = self._model.get("folder")
        # No shell.
        return port, subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment, cwd=where)  # noqa: S603

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _taken(self) -> bool:
        """Whether another user listens on the server's port; logs it."""
        others = sorted(listening_users(self._port) - {os.geteuid()})
        for uid in others:
            sys.stderr.write(f"event=backend_port_taken port={self._port} uid={uid}\n")
        return bool(others)

    def _head(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        """Connect to the server. Raises ``PortTaken`` before any data goes to another user.

        The check follows the connection: while one user listens, another cannot have accepted it.
        """
        connection.connect()
        users = listening_users(self._port)
        if users - {os.geteuid()}:
            raise PortTaken(f"another user listens on port {self._port}")
        if not users:
            raise ConnectionRefusedError(f"no process listens on port {self._port}")

    def signatures(self) -> dict[str, Any]:
        """The report to the gateway: no time is measured before the first request."""
        return self._signature

    def take(self, header: Mapping[str, Any], data: memoryview) -> None:
        """Handle a message: a request, a disconnected client, or the bytes that a client has taken."""
        if "drop" in header:
            if dropped := self._open.get(int(header["drop"])):
                dropped.drop()
        elif "read" in header:
            if asked := self._open.get(int(header["read"])):
                asked.taken(int(header["bytes"]))
        else:
            self._hands.submit(self._ask, dict(header), bytes(data))

    def _ask(self, header: dict[str, Any], body: bytes) -> None:
        number, began = int(header["number"]), time.perf_counter()
        connection = http.client.HTTPConnection(_HOST, self._port)
        self._open[number] = asked = _Asked()
        end: dict[str, Any] = {"say": "end", "number": number}
        try:
            self._connect(connection)
            asked.connected(connection.sock)
            connection.request("POST", header["path"], body, self._head() | {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status not in _STATUSES:
                raise http.client.HTTPException(f"status {response.status}")
            told = {"http": response.status, "type": response.headers.get("Content-Type", "application/json")}
            if header["stream"] and response.status == 200:
                self._pass_on(asked, {"say": "part", "number": number} | told, response)
                self._say(end | {"seconds": time.perf_counter() - began, "waited": asked.waited})
            else:
                content = response.read(self._largest + 1)
                if len(content) > self._largest:
                    raise http.client.HTTPException(too_large(len(content), self._largest))
                if response.length:
                    raise http.client.IncompleteRead(content, response.length)
                self._say(end | told | {"seconds": time.perf_counter() - began}, content)
        except PortTaken as error:
            self._taken()
            self._process.terminate()  # it no longer listens: the worker ends with it, and is restarted
            self._fail(end, error)
        except Exception as error:  # whatever the server sends: the gateway waits for an end
            self._fail(end, error)
        finally:
            del self._open[number]
            connection.close()

    def _pass_on(self, asked: _Asked, header: dict[str, Any], response: http.client.HTTPResponse) -> None:
        """Raises ``IncompleteRead`` if less data comes than announced: ``read1`` ends without an error then."""
        missing = response.length or 0
        while part := response.read1(_CHUNK):
            missing -= len(part)
            asked.sent(len(part))
            self._say(header, part)
            asked.wait_for_room()
        if missing > 0:
            raise http.client.IncompleteRead(b"", missing)

    def _fail(self, end: dict[str, Any], error: Exception) -> None:
        """If the server has ended, end the worker too; the gateway then uses another unit."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_DYING)
            return
        self._say(end | {"status": 502, "why": f"the model's server broke off: {type(error).__name__}: {error}"})

    def _say(self, header: dict[str, Any], *parts: bytes) -> None:
        with self._lock, suppress(OSError):
            send(self._connection, header, *parts)

    def _answers(self) -> bool:
        connection = BoundedConnection(_HOST, self._port, timeout=_ASK)
        try:
            self._connect(connection)
            connection.request("GET", "/v1/models", headers=self._head())
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _tell_that_it_lives(self) -> None:
        """Whether the server lists its models: a long request alone is no sign of a hung server."""
        while self._process.poll() is None:
            time.sleep(_ALIVE_EVERY)
            if self._open and self._answers():
                self._say({"say": "alive"})

    def _end_with_it(self) -> None:
        self._process.wait()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
