"""A model's own server (vLLM and the like), which the worker of its unit starts and asks."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving import proof
from mirage.allocation.inference.serving.frames import send
from mirage.client.boundedconnection import BoundedConnection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_HOST = "127.0.0.1"
_LOOK = 0.2
_ASK = 5.0
_CHUNK = 1 << 16
_DYING = 1.0
"""Seconds in which a server that has broken off an answer turns out to have ended."""
_GRACE = 10.0


class ServerEnded(Exception):
    """The server ended before it was ready."""


class ServerWatch:
    """Starts the server, passes requests on to it, and ends with it."""

    def __init__(self, connection: socket.socket, setup: Mapping[str, Any]) -> None:
        (self._model,) = setup["models"]
        self._connection = connection
        self._lock = threading.Lock()
        self._port = _free_port()
        self._hands = ThreadPoolExecutor(int(setup["slots"]), "request")
        self._open = dict[int, http.client.HTTPConnection]()
        """Requests that the server works on."""
        words = [word.replace("{port}", str(self._port)) for word in self._model["backend"]]
        environment = {name: value for name, value in os.environ.items() if name != proof.SECRET}
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment)  # noqa: S603 - no shell
        self._signature: dict[str, Any] = {self._model["name"]: {"seconds": None, "inputs": [], "outputs": []}}

    def __enter__(self) -> ServerWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._hands.shutdown(wait=False, cancel_futures=True)

    def wait_until_ready(self) -> None:
        """Until it lists its models. Raises ``ServerEnded``; the gateway says how long is too long."""
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerEnded(f"{self._model['backend'][0]} ended with exit code {self._process.returncode}")
            time.sleep(_LOOK)
        threading.Thread(target=self._end_with_it, daemon=True).start()

    def signatures(self) -> dict[str, Any]:
        """What the gateway is told: nothing is measured before somebody asks."""
        return self._signature

    def take(self, header: Mapping[str, Any], data: memoryview) -> None:
        """A request, or the word that nobody waits for one any more."""
        if "drop" in header:
            dropped = self._open.get(int(header["drop"]))
            if dropped is not None and dropped.sock is not None:
                with suppress(OSError):
                    dropped.sock.shutdown(socket.SHUT_RDWR)
        else:
            self._hands.submit(self._ask, dict(header), bytes(data))

    def _ask(self, header: dict[str, Any], body: bytes) -> None:
        number, began = int(header["number"]), time.perf_counter()
        connection = http.client.HTTPConnection(_HOST, self._port)
        self._open[number] = connection
        end: dict[str, Any] = {"say": "end", "number": number}
        try:
            connection.request("POST", header["path"], body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            told = {"http": response.status, "type": response.headers.get("Content-Type", "application/json")}
            if header["stream"] and response.status == 200:
                self._pass_on(number, told, response)
                self._say(end | {"seconds": time.perf_counter() - began})
            else:
                content = response.read()
                self._say(end | told | {"seconds": time.perf_counter() - began}, content)
        except (OSError, http.client.HTTPException) as error:
            self._fail(end, error)
        finally:
            del self._open[number]
            connection.close()

    def _pass_on(self, number: int, told: dict[str, Any], response: http.client.HTTPResponse) -> None:
        while part := response.read1(_CHUNK):
            self._say({"say": "part", "number": number} | told, part)

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
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end_with_it(self) -> None:
        self._process.wait()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])
