"""Speed of inference: simulated requests and decisions, and the overhead of a real gateway per request.

Simulated: segments per second in whole runs, and decisions of each policy; CPU seconds of this process, the
fastest of several repetitions. A gateway: two workers on a small network, requests at random times. The machine
may be shared.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.costs.examples import write_examples
from mirage.allocation.inference.registry import POLICIES, request_policy
from mirage.allocation.inference.relmas import policy_name
from mirage.allocation.inference.serving.load_client import LoadPlan, drive, fine_loop, summarize
from mirage.allocation.inference.simulation import SimulatedSystem
from mirage.allocation.inference.workload.scenario import find_scenario
from mirage.allocation.inference.workload.stage import set_stage
from mirage.bench import BenchSection
from mirage.domain.errors import MirageError
from mirage.domain.inference import Dispatch, RequestTable
from mirage.ownprocess import own_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.allocation.inference.workload.stage import PreparedScenario
    from mirage.domain.inference import SystemView

RATE = 200.0
LOAD_SECONDS = 20.0
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


def measure_serving(say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """At ``RATE`` requests a second."""
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        write_examples(folder)
        (folder / "serve.toml").write_text(_CONFIG, encoding="utf-8")
        say("the gateway starts")
        own = ("--engine=processes", "--devices=0")
        gateway = stack.enter_context(_running(folder, "gateway", ("serve", f"{folder}/serve.toml", *own)))
        _wait((folder / "state" / "address.json").exists, gateway, folder / "gateway.log")
        say(f"{LOAD_SECONDS:g} s at {RATE:g} requests a second")
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


def _measure(asked: str, folder: Path, processes: dict[str, subprocess.Popen[bytes]]) -> BenchSection:
    """Measure requests to the process ``asked``; the section lists the CPU use of each process."""
    url = _url(processes[asked], folder / f"{asked}.log")
    before = {name: _used(process.pid) for name, process in processes.items()}
    document = _drive(LoadPlan(url, _KEY, _MODEL, RATE, LOAD_SECONDS, _DEADLINE, 0))
    rows = [(name, _quantiles(document[f"{name}_ms"])) for name in ("added", "overhead", "lag", "latency")]
    for name, process in processes.items():
        milliseconds = 1000 * (_used(process.pid) - before[name]) / document["requests"]
        rows.append((f"CPU time of the {name}", f"{milliseconds:.2f} ms a request"))
    rows.append(("answered", f"{document['answered']} of {document['requests']}"))
    return BenchSection(f"asked at the {asked}: {RATE:g} requests a second, {os.cpu_count()} cores", tuple(rows))


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


READY = 64
SECONDS = 20.0
"""Of each scenario."""
PLAYED = ("fcfs", "edf", "edf:late-last", "llf:late-last", "prema")
REPEATS = 3
DECISIONS = 200


def measure_requests(models: Path | None, say: Callable[[str], None]) -> tuple[BenchSection, ...]:
    """Whole runs and decisions. ``models``: directory of a trained agent, measured next to the others."""
    say("compiling, or reading the compiled kernel")
    stage = set_stage(find_scenario("medium"))
    stage.simulated(0).play(request_policy("fcfs"))
    sections = []
    for name in ("medium", "mixed-heavy"):
        say(f"whole runs: {name}")
        sections.append(_whole_runs(name))
    say("one decision")
    agents = (policy_name(models),) if models else ()
    sections.append(_decisions(stage, (*(name for name in sorted(POLICIES) if not name.endswith(":")), *agents)))
    return tuple(sections)


def _whole_runs(name: str) -> BenchSection:
    stage = set_stage(replace(find_scenario(name), duration=SECONDS))
    rows = tuple((policy, _whole_run(stage, policy)) for policy in PLAYED)
    return BenchSection(f"whole runs: {name}, {SECONDS:g} s on {len(stage.system.names)} units, one core", rows)


def _whole_run(stage: PreparedScenario, policy: str) -> str:
    requests, taken = stage.requests(0), []
    for _ in range(REPEATS):
        system = SimulatedSystem(requests, stage.system, stage.costs, stage.rules)
        begun = time.process_time()
        outcome = system.play(request_policy(policy))
        taken.append(time.process_time() - begun)
    waiting = np.nansum(outcome.latency) / outcome.figures.span
    return (
        f"{outcome.pieces / min(taken) / 1e6:.2f} million pieces/s ({outcome.pieces:,} pieces,"
        f" {waiting:,.0f} requests in the system on average)"
    )


def _decisions(stage: PreparedScenario, policies: tuple[str, ...]) -> BenchSection:
    """By the way of the gateway: a view in, a dispatch out."""
    view = _crowded(stage)
    rows = tuple((policy, _decision(policy, view)) for policy in policies)
    units = len(stage.system.names)
    return BenchSection(f"one decision: {len(view.request)} ready pieces, {units} units, one of them free", rows)


def _crowded(stage: PreparedScenario) -> SystemView:
    """All units but one are busy, and many requests wait."""
    come, drawn = READY + len(stage.system.names) - 1, stage.requests(1)
    requests = RequestTable(
        arrival=np.zeros(come),
        model=drawn.model[:come],
        tenant=drawn.tenant[:come],
        deadline=(drawn.deadline - drawn.arrival)[:come],
        weight=drawn.weight[:come],
        tenants=drawn.tenants,
    )
    system = SimulatedSystem(requests, stage.system, stage.costs, stage.rules)
    system.advance()
    begun = request_policy("fcfs").decide(system.view())
    system.dispatch(Dispatch(begun.ready[:-1], begun.unit[:-1]))
    return system.view()


def _decision(name: str, view: SystemView) -> str:
    policy = request_policy(name)
    policy.begin()
    policy.decide(view)
    taken = []
    for _ in range(DECISIONS):
        begun = time.process_time()
        policy.decide(view)
        taken.append(time.process_time() - begun)
    return f"{np.median(taken) * 1e6:,.0f} us (fastest {min(taken) * 1e6:,.0f})"
