"""A model's own server (vLLM and the like), which the worker of its unit starts and asks."""

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

from mirage.allocation.inference.serving import proof
from mirage.allocation.inference.serving.exchanges import WINDOW
from mirage.allocation.inference.serving.frames import LONGEST_BYTES, send, too_large
from mirage.client.boundedconnection import BoundedConnection
from mirage.client.portlisteners import listening_users

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_HOST = "127.0.0.1"
_KEY, _KEY_OF_VLLM = "MIRAGE_BACKEND_KEY", "VLLM_API_KEY"
"""The server's environment: the key that each request brings. vLLM demands its own where it is set."""
_LOOK = 0.2
_ASK = 5.0
_ALIVE_EVERY = 1.0
"""Seconds between two questions whether the server still answers, while it works on a request."""
_STATUSES = range(200, 600)
_CHUNK = 1 << 16
_DYING = 1.0
"""Seconds in which a server that has broken off an answer turns out to have ended."""
_GRACE = 10.0


class ServerEnded(Exception):
    """The server ended before it was ready."""


class PortTaken(ConnectionError):
    """Not the server listens on its port, but another user."""


class _Asked:
    """A request that the server works on, and how many bytes of its answer the client has not taken yet."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._changed = threading.Condition()
        self._under_way = 0
        self._dropped = False
        self.waited = 0.0
        """Seconds for which the client took nothing."""

    def connected(self, to: socket.socket | None) -> None:
        """Raises ``ConnectionAbortedError`` where the client has left meanwhile."""
        with self._changed:
            self._socket = to
            if self._dropped:
                raise ConnectionAbortedError("the client has left")

    def wait_for_room(self) -> None:
        """While the client does not take what it was sent. Raises ``ConnectionAbortedError`` once it has left."""
        began = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self._dropped or self._under_way < WINDOW)
            if self._dropped:
                raise ConnectionAbortedError("the client has left")
        self.waited += time.perf_counter() - began

    def sent(self, size: int) -> None:
        """Count a part."""
        with self._changed:
            self._under_way += size

    def taken(self, size: int) -> None:
        """The client has them."""
        with self._changed:
            self._under_way -= size
            self._changed.notify_all()

    def drop(self) -> None:
        """The client has left: end the server's connection."""
        with self._changed:
            self._dropped = True
            self._changed.notify_all()
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)


class ServerWatch:
    """Starts the server, passes requests on to it, and ends with it.

    Its port is known to all users of the node, and free until the server listens: nobody is asked whose socket
    does not belong to this process's user, the only one who may make such sockets. For the same reason each
    request brings a key of this start, which the server finds in its environment and may demand.
    """

    def __init__(self, connection: socket.socket, setup: Mapping[str, Any]) -> None:
        (self._model,) = setup["models"]
        self._connection = connection
        self._lock = threading.Lock()
        self._hands = ThreadPoolExecutor(int(setup["slots"]), "request")
        self._open = dict[int, _Asked]()
        """Requests that the server works on."""
        self._largest = int(setup.get("largest_answer", LONGEST_BYTES))
        self._key = os.environ.get(_KEY) or os.environ.get(_KEY_OF_VLLM) or proof.fresh()
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
        """Until it lists its models. Raises ``ServerEnded``; the gateway says how long is too long.

        Where another user was faster at its port it is started again with another one.
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
        environment = {name: value for name, value in os.environ.items() if name != proof.SECRET}
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
        """Whether another user listens on the server's port, which is logged."""
        others = sorted(listening_users(self._port) - {os.geteuid()})
        for uid in others:
            sys.stderr.write(f"event=backend_port_taken port={self._port} uid={uid}\n")
        return bool(others)

    def _head(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"}

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        """To the server; raises ``PortTaken`` before anything is said to another user.

        Looked at once connected: while one user listens, another cannot have taken the connection.
        """
        connection.connect()
        users = listening_users(self._port)
        if users - {os.geteuid()}:
            raise PortTaken(f"another user listens on port {self._port}")
        if not users:
            raise ConnectionRefusedError(f"nobody listens on port {self._port} any more")

    def signatures(self) -> dict[str, Any]:
        """What the gateway is told: nothing is measured before somebody asks."""
        return self._signature

    def take(self, header: Mapping[str, Any], data: memoryview) -> None:
        """A request, or that its client has left, or how many bytes of its answer the client has taken."""
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
            self._process.terminate()  # it listens no more: the worker ends with it, and is started again
            self._fail(end, error)
        except Exception as error:  # whatever the server answers: the gateway waits for an end
            self._fail(end, error)
        finally:
            del self._open[number]
            connection.close()

    def _pass_on(self, asked: _Asked, header: dict[str, Any], response: http.client.HTTPResponse) -> None:
        """Raises ``IncompleteRead`` where less comes than was announced: ``read1`` ends as if that were all."""
        missing = response.length or 0
        while part := response.read1(_CHUNK):
            missing -= len(part)
            asked.sent(len(part))
            self._say(header, part)
            asked.wait_for_room()
        if missing > 0:
            raise http.client.IncompleteRead(b"", missing)

    def _fail(self, end: dict[str, Any], error: Exception) -> None:
        """Where the server has ended the worker ends too, and the gateway asks elsewhere."""
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
        """As long as it lists its models: a request that takes long is not a server that hangs."""
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
