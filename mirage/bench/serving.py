"""Overhead of a gateway per request: two workers on a small network, requests at random times."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.costs.examples import write_examples
from mirage.allocation.inference.serving.askers import fine_loop
from mirage.allocation.inference.serving.loading import LoadPlan, drive, summarize
from mirage.bench.section import Section
from mirage.domain.errors import MirageError
from mirage.ownprocess import own_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RATE = 200.0
SECONDS = 20.0
READY_WITHIN = 120.0
_MODEL, _KEY = "transformer", "the-key-of-the-bench"
_DEADLINE = 50.0
_LOOK = 0.1
_CONFIG = f"""
[gateway]
listen = "127.0.0.1:0"
policy = "edf"
state = "state"
[[model]]
name = "{_MODEL}"
onnx = "{_MODEL}.onnx"
[[unit]]
name = "cpu"
count = 2
[[tenant]]
name = "bench"
keys = ["{hashlib.sha256(_KEY.encode()).hexdigest()}"]
"""


class NotReady(MirageError):
    """A gateway or a reverse proxy has ended or does not become ready; the message has its output."""


def measure_serving(say: Callable[[str], None]) -> tuple[Section, ...]:
    """At ``RATE`` requests a second."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        write_examples(folder)
        (folder / "serve.toml").write_text(_CONFIG, encoding="utf-8")
        say("the gateway starts")
        own = ("--engine=processes", "--devices=0")
        gateway = stack.enter_context(_running(folder, "gateway", ("serve", f"{folder}/serve.toml", *own)))
        _wait((folder / "state" / "address.json").exists, gateway, folder / "gateway.log")
        say(f"{SECONDS:g} s at {RATE:g} requests a second")
        sections = [_measure("gateway", folder, {"gateway": gateway})]
        front = stack.enter_context(
            _running(folder, "front", ("front", f"{folder}/state", "--listen=127.0.0.1:0"))
        )
        say("the same through a front")
        sections.append(_measure("front", folder, {"gateway": gateway, "front": front}))
    return tuple(sections)


@contextmanager
def _running(folder: Path, name: str, words: tuple[str, ...]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    with (folder / f"{name}.log").open("wb") as log:
        argv = own_python("-m", "mirage", "allocation", *words)
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)  # noqa: S603 - no shell
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _measure(asked: str, folder: Path, processes: dict[str, subprocess.Popen[bytes]]) -> Section:
    """Measure requests to the process ``asked``; the section lists the CPU use of each process."""
    url = _url(processes[asked], folder / f"{asked}.log")
    before = {name: _used(process.pid) for name, process in processes.items()}
    document = _drive(LoadPlan(url, _KEY, _MODEL, RATE, SECONDS, _DEADLINE, 0))
    rows = [(name, _quantiles(document[f"{name}_ms"])) for name in ("added", "overhead", "lag", "latency")]
    for name, process in processes.items():
        milliseconds = 1000 * (_used(process.pid) - before[name]) / document["requests"]
        rows.append((f"CPU time of the {name}", f"{milliseconds:.2f} ms a request"))
    rows.append(("answered", f"{document['answered']} of {document['requests']}"))
    return Section(f"asked at the {asked}: {RATE:g} requests a second, {os.cpu_count()} cores", tuple(rows))


def _drive(plan: LoadPlan) -> dict[str, Any]:
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        return summarize(plan, runner.run(drive(plan)))


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    """The URL at which the process listens, from its output."""

    def found() -> str | None:
        there = re.search(r"https?://\S+", log.read_text(encoding="utf-8"))
        return there and there[0]

    return str(_wait(found, process, log))


def _wait(there: Callable[[], object], process: subprocess.Popen[bytes], log: Path) -> object:
    end = time.monotonic() + READY_WITHIN
    while not (found := there()):
        if process.poll() is not None or time.monotonic() > end:
            raise NotReady(f"it does not become ready: {log.read_text(encoding='utf-8')}")
        time.sleep(_LOOK)
    return found


def _used(process: int) -> float:
    """Seconds of CPU time so far (proc(5): utime and stime)."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _quantiles(found: dict[str, float]) -> str:
    return ", ".join(f"{'max' if name == 'p100' else name} {value:.2f}" for name, value in found.items()) + " ms"
