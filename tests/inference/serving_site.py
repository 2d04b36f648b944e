"""A gateway as a separate process, with what a client needs to query it."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 300.0
KEYS = {name: f"{name}-key-0123456789" for name in ("alice", "bob", "operator")}
FAKE_WORKER = Path(__file__).with_name("fake_worker.py")


def digest(name: str) -> str:
    return hashlib.sha256(KEYS[name].encode()).hexdigest()


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)

    @property
    def values(self) -> list[float]:
        """The data of the first output, in JSON."""
        assert self.status == 200, self.body
        return self.document["outputs"][0]["data"]


def tensor(values: list[float], **more: Any) -> dict[str, Any]:
    """A request for a model that takes ``x``: FP32 [1, n]."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}], **more}


@dataclass
class Site:
    """``text``: the configuration without [gateway]."""

    folder: Path
    text: str
    gateway: str = ""
    state: str = "state"
    process: subprocess.Popen[bytes] | None = None
    url: str = ""
    log: Path = field(init=False)

    def start(self, *, ready: bool = True) -> Site:
        config = self.folder / f"serve-{time.monotonic_ns()}.toml"
        own = f'policy = "fcfs"\nstate = "{self.state}"\noperators = ["{digest("operator")}"]'
        config.write_text(f'[gateway]\nlisten = "127.0.0.1:0"\n{own}\n{self.gateway}\n{self.text}')
        self.log = config.with_suffix(".log")
        argv = [sys.executable, "-m", "mirage", "allocation", "serve", str(config), "--engine=processes"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen([*argv, "--devices=0"], stdout=sink, stderr=sink, env=environment)
        self.wait(lambda: "listens on" in self.said, "the gateway to listen")
        found = re.search(r"http://127\.0\.0\.1:\d+", self.said)
        assert found
        self.url = found[0]
        if ready:
            self.wait(lambda: self.get("/health/ready").status == 200, "the gateway to be ready")
        return self

    @property
    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def wait(self, happened: Any, what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            assert self.process is not None
            assert self.process.poll() is None, f"the gateway has ended: {self.said}"
            assert time.monotonic() < end, f"waited for {what} without success: {self.said}"
            time.sleep(0.05)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)

    def ask(self, method: str, target: str, body: Any = None, *, who: str = "alice", **headers: str) -> Reply:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        key = {"Authorization": f"Bearer {KEYS.get(who, who)}"} if who else {}
        connection = self.connect()
        try:
            connection.request(method, target, content, key | named)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, target: str, **more: Any) -> Reply:
        return self.ask("GET", target, **more)

    def infer(self, model: str, values: list[float] | None = None, **more: Any) -> Reply:
        return self.ask("POST", f"/v2/models/{model}/infer", tensor(values or [1, 2, 3, 4]), **more)

    @property
    def most_memory(self) -> int:
        """Bytes that the gateway has held at most."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def metric(self, name: str, **labels: str) -> float:
        """The sum over what has these labels."""
        text = self.get("/metrics", who="operator").body.decode()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        rows = [row for row in text.splitlines() if re.match(rf"mirage_serving_{name}(\{{| )", row)]
        return sum(float(row.rpartition(" ")[2]) for row in rows if all(each in row for each in wanted))

    def stop(self, *, by: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(by)
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
