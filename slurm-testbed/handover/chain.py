"""The links of a serving chain, and the reverse proxy before them."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.allocation.inference.costs.examples import write_examples

from handover.bed import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from handover.bed import Bed

MODEL = "transformer"
PATIENCE = 180.0
LOOK = 0.1
_MIRAGE = f"{sys.executable} -m mirage allocation"
_LINK = ("--partition=npu", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=4", "--gres=npu:ascend:4")
_MORE = ("--time=30", "--signal=B:USR1@300", "--open-mode=append", "--parsable")
_CONFIG = """
[gateway]
listen = "127.0.0.1:0"
policy = "edf"
state = "state"
[[model]]
name = "{model}"
onnx = "{model}.onnx"
[[unit]]
name = "npu"
device = "npu"
count = 2
[[tenant]]
name = "tenant"
keys = ["{digest}"]
deadline = "100ms"
"""


def write_site(folder: Path) -> str:
    """Write a network and the gateway's configuration; returns the tenant's key."""
    key = secrets.token_urlsafe()
    write_examples(folder)
    text = _CONFIG.format(model=MODEL, digest=hashlib.sha256(key.encode()).hexdigest())
    (folder / "serve.toml").write_text(text)
    return key


@dataclass
class Chain:
    """A chain whose links are jobs of the same script."""

    folder: Path
    bed: Bed
    jobs: list[int] = field(default_factory=list)

    def submit(self) -> int:
        """Submit the next link; its job id."""
        script = f"#!/bin/bash\nexec {_MIRAGE} serve {self.folder}/serve.toml\n"
        argv = ["sbatch", *_LINK, *_MORE, f"--output={self._log}", f"--chdir={self.folder}"]
        self.jobs.append(int(self.bed.run(argv, script)))
        return self.jobs[-1]

    def address(self) -> str:
        """Address of the current gateway."""
        try:
            return str(json.loads((self.folder / "state" / "address.json").read_text())["url"])
        except OSError:
            return ""

    def wait_for_address(self, before: str) -> None:
        """Wait until another gateway answers. Raises ``Failed``."""
        self._wait(lambda: self.address() != before, "a gateway to be ready")

    def wait_for_end(self, job: int) -> None:
        """Wait until a job ends. Raises ``Failed``."""
        self._wait(lambda: str(job) not in self._queued(), f"the end of job {job}")

    def end(self) -> None:
        """Cancel all links and wait for their ends."""
        left = self._queued() & {str(job) for job in self.jobs}
        if left:
            self.bed.run(["scancel", *left])
            self._wait(lambda: not left & self._queued(), "the end of the links")

    @contextmanager
    def front(self) -> Iterator[str]:
        """Run the reverse proxy; yields its address. Raises ``Failed``."""
        argv = [*_MIRAGE.split(), "front", str(self.folder / "state"), "--listen=127.0.0.1:0"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://\S+", line)
            if not found:
                raise Failed(f"the reverse proxy does not start: {line}{process.stderr.read()}")
            try:
                yield found[0]
            finally:
                process.send_signal(signal.SIGTERM)

    @property
    def _log(self) -> Path:
        return self.folder / "links.log"

    def _queued(self) -> set[str]:
        return set(self.bed.run(["squeue", "--noheader", "--format=%A"]).split())

    def _wait(self, happened: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not happened():
            if time.monotonic() > end:
                said = self._log.read_text() if self._log.exists() else ""
                raise Failed(f"waited {PATIENCE:g} s for {what}; log of the links:\n{said}")
            time.sleep(LOOK)
