"""How the API answers under load, and what that costs the loop next to it.

One process is the daemon: it cycles over a busy cluster without a pause and serves its socket. Another asks for
the list of all chains at a steady rate, whether or not answers come: a request's time counts from when it was due.
Quiet and loaded slices of a few cycles take turns, now the one first, now the other; what is compared is each
pair, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import tempfile
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.bench import BenchSection, standin
from mirage.bench.daemon import SEED, records
from mirage.domain.errors import MirageError
from mirage.ownprocess import spawning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

_CONNECTIONS = 16
_WARM = 0.3
"""Seconds that do not count: connections are made."""
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_ANSWER_WITHIN = 30.0


@dataclass(slots=True)
class RequestLoad:
    """Latencies and failures of the requests in one measurement."""

    seconds: list[float] = field(default_factory=list)
    """Each request's, from when it was due."""
    failed: int = 0
    """Not answered with 200, or not at all."""
    bytes: int = 0
    """Of one answer's body."""
    length: float = 0.0
    """Seconds in which they were due."""


def run_load(path: str, rate: int, parent: Connection) -> None:
    """A process's main function: ``parent`` sends a target, which is requested until ``parent`` sends again.

    ``parent`` receives ``None`` once requests count, then a ``RequestLoad``; an empty target ends the process.
    """
    while target := parent.recv():
        asyncio.run(_run(path, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), rate, parent))


async def _run(path: str, request: bytes, rate: int, parent: Connection) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    source = _Source(request, rate)
    askers = [
        await loop.create_unix_connection(lambda: _LoadConnection(source.answered), path)
        for _ in range(_CONNECTIONS)
    ]
    source.start([asker for _, asker in askers])
    await asyncio.sleep(_WARM)
    source.load, began = RequestLoad(), loop.time()
    parent.send(None)
    loop.add_reader(parent.fileno(), told.set)
    await told.wait()
    loop.remove_reader(parent.fileno())
    parent.recv()
    source.load.length = loop.time() - began
    await source.drain()
    for transport, _ in askers:
        transport.close()
    parent.send(source.load)


class _Source:
    """Has a request ready each ``1 / rate`` seconds, for whichever connection is free."""

    def __init__(self, request: bytes, rate: int) -> None:
        self.load = RequestLoad()
        self._request, self._interval = request, 1 / rate
        self._loop = asyncio.get_running_loop()
        self._free: deque[_LoadConnection] = deque()
        """Taken in turn: one that is idle for seconds is closed by the server."""
        self._due: deque[tuple[float, RequestLoad]] = deque()
        self._open = 0
        self._next: asyncio.TimerHandle | None = None

    def start(self, askers: list[_LoadConnection]) -> None:
        """Add free connections and start the periodic requests."""
        self._free.extend(askers)
        self._schedule(self._loop.time())

    async def drain(self) -> None:
        """No further requests; those that are open are waited for."""
        assert self._next is not None
        self._next.cancel()
        end = self._loop.time() + _ANSWER_WITHIN
        while self._open and self._loop.time() < end:
            await asyncio.sleep(0.01)
        self.load.failed += self._open

    def answered(self, asker: _LoadConnection, size: int, *, good: bool) -> None:
        """The request that ``asker`` had is through."""
        instant, load = asker.asked
        load.seconds.append(self._loop.time() - instant)
        load.failed += not good
        load.bytes = size
        self._open -= 1
        self._free.append(asker)
        self._send()

    def _schedule(self, instant: float) -> None:
        self._next = self._loop.call_at(instant, self._is_due, instant)

    def _is_due(self, instant: float) -> None:
        self._due.append((instant, self.load))
        self._open += 1
        self._schedule(instant + self._interval)
        self._send()

    def _send(self) -> None:
        while self._due and self._free:
            self._free.popleft().ask(self._request, self._due.popleft())


class _LoadConnection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, answered: Callable[..., None]) -> None:
        self.asked: tuple[float, RequestLoad] = (0.0, RequestLoad())
        self._answered = answered
        self._transport: asyncio.WriteTransport | None = None
        self._head = b""
        self._size = self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the requests to come."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def ask(self, request: bytes, asked: tuple[float, RequestLoad]) -> None:
        """Send the request, due at the time and counted in the load of ``asked``."""
        assert self._transport is not None
        self.asked, self._head, self._left = asked, b"", 0
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Count down to the end of the answer, whose length its head says."""
        if self._left:
            self._left -= len(data)
        else:
            self._head += data
            head, found, body = self._head.partition(_END)
            if not found:
                return
            self._size = int(head.lower().partition(_LENGTH)[2].partition(b"\r\n")[0])
            self._left = self._size - len(body)
        if not self._left:
            self._answered(self, self._size, good=self._head.startswith(b"HTTP/1.1 200 "))


SIZE = standin.Size(5_000, 500, 500, 500, 20)
RATE = 200
"""Requests a second."""
CYCLES = 2
"""In a slice: the stand-in for Slurm has two answers by turns."""
_TARGETS = (
    ("GET /chains, the page that a client gets by default", "/api/v1/chains?all=true", 12),
    ("GET /chains, all of them in one page", "/api/v1/chains?all=true&limit=1000", 6),
)
"""Target of the request, and number of pairs of slices."""
_PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Slice:
    """Mean durations of the loop's cycles, in seconds."""

    wall: float
    unhindered: float
    """Of that, without the wait for a CPU that had other work; what is left is work, files, and the wait for
    the interpreter."""
    cpu: float
    """Of the loop's own thread."""


@dataclass(slots=True)
class Pairs:
    """Quiet and loaded slices, each with its neighbour."""

    quiet: list[Slice]
    loaded: list[Slice]
    loads: list[RequestLoad]


def measure_api(say: Callable[[str], None], size: standin.Size = SIZE) -> tuple[BenchSection, ...]:
    """Measure the API at the given cluster size; ``say`` receives the title of the next measurement."""
    sections: list[BenchSection] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        now = int(time.time())
        standin.install(folder, size, records(size.chains, now), now, SEED)
        with (
            _process(_daemon, folder, size.chains, now) as daemon,
            _process(run_load, str(folder / "api.sock"), RATE) as client,
        ):
            _heard(daemon)  # it answers
            for title, target, count in _TARGETS:
                say(f"{title}: {count} pairs of slices, {RATE} requests/s in one of each")
                pairs = _measured(daemon, client, target, count)
                sections += [_answers(title, size, pairs.loads), _cycles(pairs)]
            for process in (daemon, client):
                process.send("")
    return tuple(sections)


@contextmanager
def _process(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run ``work`` in a separate process; yields the connection to it."""
    context = spawning()
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
        process.join(10)
    finally:
        process.kill()


def _measured(daemon: Connection, client: Connection, target: str, count: int) -> Pairs:
    pairs = Pairs([], [], [])
    for turn in range(count):
        for loaded in (False, True) if turn % 2 else (True, False):
            if loaded:
                _ask(client, target)
                pairs.loaded.append(_ask(daemon, "cycle"))
                pairs.loads.append(_ask(client, "enough"))
            else:
                pairs.quiet.append(_ask(daemon, "cycle"))
    return pairs


def _ask(other: Connection, words: str) -> Any:
    other.send(words)
    return _heard(other)


def _heard(other: Connection) -> Any:
    """Receive a message of the other process. Raises ``MirageError`` where it has died."""
    try:
        if other.poll(_PATIENCE):
            return other.recv()
    except EOFError:
        pass
    raise MirageError("bench api: one of the processes ended early")


def _daemon(folder: Path, chains: int, now: int, parent: Connection) -> None:
    from mirage.bootstrap.assembly import build
    from mirage.config.model import Config
    from mirage.control.leader_election import SOLE
    from mirage.daemon.host import settle

    logging.basicConfig(filename=folder / "log", level=logging.WARNING)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    state = str(folder)
    config = Config.model_validate(
        {
            "store": {"url": f"sqlite:///{folder}/mirage.db", "history": 0},
            "service": {"state": state, "runtime": state},
            "api": {"socket": str(folder / "api.sock")},
        }
    )
    service = build(config, lambda: None, SOLE)
    for record in records(chains, now):
        service.store.chains.save(record)
    interface = service.interface
    assert interface is not None
    interface.start()
    for _ in range(2):  # everything is read for the first time
        service.loop.cycle()
    settle()
    parent.send(None)
    while parent.recv():
        parent.send(_cycled(service.loop.cycle))
    interface.stop()
    service.close()


def _cycled(cycle: Callable[[], object]) -> Slice:
    began, delayed, worked = time.perf_counter(), _delay(), time.thread_time()
    for _ in range(CYCLES):
        cycle()
    wall, cpu = time.perf_counter() - began, time.thread_time() - worked
    return Slice(wall / CYCLES, (wall - (_delay() - delayed)) / CYCLES, cpu / CYCLES)


def _delay() -> float:
    """Seconds that this thread could have run and had no CPU, by the kernel's count."""
    return int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _answers(title: str, size: standin.Size, loads: list[RequestLoad]) -> BenchSection:
    times = sorted(seconds for load in loads for seconds in load.seconds)
    length = sum(load.length for load in loads)
    return BenchSection(
        f"{title}: {size.chains:,} chains, {size.pending:,} pending jobs, {RATE} requests/s next to the loop",
        (
            ("requests", f"{len(times):,} in {length:.0f} s ({len(times) / length:.0f}/s)"),
            ("not answered with 200", f"{sum(load.failed for load in loads)}"),
            ("load average, CPUs", f"{os.getloadavg()[0]:.1f}, {os.cpu_count()}"),
            ("size of an answer", f"{loads[0].bytes / 1e3:.0f} kB"),
            ("p50", f"{1e3 * statistics.median(times):.1f} ms"),
            ("p99", f"{1e3 * times[int(0.99 * len(times))]:.1f} ms"),
            ("longest", f"{1e3 * times[-1]:.1f} ms"),
        ),
    )


def _cycles(pairs: Pairs) -> BenchSection:
    kinds = {
        "real time": "wall",
        "the same without waits for a CPU": "unhindered",
        "CPU time of the loop's thread": "cpu",
    }
    rows = [
        (label, _compared(*([getattr(each, kind) for each in half] for half in (pairs.quiet, pairs.loaded))))
        for label, kind in kinds.items()
    ]
    return BenchSection(
        f"One cycle, {len(pairs.quiet)} pairs of {CYCLES} cycles without load and under it", tuple(rows)
    )


def _compared(quiet: list[float], loaded: list[float]) -> str:
    ratios = [under / without for without, under in zip(quiet, loaded, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return (
        f"{statistics.median(quiet):.3f} s without load, {statistics.median(loaded):.3f} s under it: "
        f"x {middle:.2f}, half of the pairs within {low:.2f} and {high:.2f}"
    )
