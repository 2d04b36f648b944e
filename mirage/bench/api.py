"""How the interface answers under load, and what that costs the loop beside it.

One process is the daemon: it cycles over a busy cluster and serves its socket. Another asks for the list of all
chains at a steady rate, whether or not answers come: a request's time counts from when it was due. Blocks with and
without load take turns, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.bench import standin
from mirage.bench.daemon import SEED, records
from mirage.bench.load import Load, run_load
from mirage.bench.section import Section
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

SIZE = standin.Size(5_000, 500, 500, 500, 20)
RATE = 200
"""Requests a second."""
BLOCKS = 6
"""Half of them under load."""
CYCLES = 5
"""In each block."""
PAUSE = 0.5
"""Seconds between two cycles of a block."""
_PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Block:
    """What the loop's cycles of one block took, in seconds."""

    wall: tuple[float, ...]
    cpu: tuple[float, ...]
    """Of the loop's own thread."""


def measure_api(say: Callable[[str], None]) -> tuple[Section, ...]:
    """``say`` is told what is measured next."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        now = int(time.time())
        standin.install(folder, SIZE, records(SIZE.chains, now), now, SEED)
        idle, busy, loads = _measured(folder, now, say)
    return (_answers(loads), _cycles(idle, busy))


def _measured(folder: Path, now: int, say: Callable[[str], None]) -> tuple[list[Block], list[Block], list[Load]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    daemon = context.Process(target=_daemon, args=(folder, now, theirs), daemon=True)
    daemon.start()
    theirs.close()
    try:
        _heard(ours)  # it answers
        blocks: tuple[list[Block], list[Block]] = ([], [])
        loads: list[Load] = []
        for turn in range(BLOCKS):
            loaded = bool(turn % 2)
            say(f"block {turn + 1} of {BLOCKS}, {f'{RATE} requests/s' if loaded else 'no load'}")
            block, load = _block(ours, folder, loaded=loaded)
            blocks[loaded].append(block)
            loads += [load] if load else []
        ours.send("end")
    finally:
        daemon.join(10)
        daemon.kill()
    return (*blocks, loads)


def _block(daemon: Connection, folder: Path, *, loaded: bool) -> tuple[Block, Load | None]:
    if not loaded:
        daemon.send("block")
        idle: Block = _heard(daemon)
        return idle, None
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    client = context.Process(target=run_load, args=(str(folder / "api.sock"), RATE, theirs), daemon=True)
    client.start()
    theirs.close()
    try:
        _heard(ours)  # it asks
        daemon.send("block")
        block: Block = _heard(daemon)
        ours.send("end")
        load: Load = _heard(ours)
    finally:
        client.join(10)
        client.kill()
    return block, load


def _heard(other: Connection) -> Any:
    """What the other process says. Raises ``MirageError`` where it has died."""
    try:
        if other.poll(_PATIENCE):
            return other.recv()
    except EOFError:
        pass
    raise MirageError("bench api: one of the processes has ended before its time")


def _daemon(folder: Path, now: int, parent: Connection) -> None:
    from mirage.bootstrap.service import build
    from mirage.config.model import Config

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
    service = build(config, lambda: None)
    for record in records(SIZE.chains, now):
        service.store.chains.save(record)
    interface = service.interface
    assert interface is not None
    interface.start()
    for _ in range(2):  # everything is read for the first time
        service.loop.cycle()
    parent.send(None)
    while parent.recv() == "block":
        parent.send(_cycled(service.loop.cycle))
    interface.stop()
    service.close()


def _cycled(cycle: Callable[[], object]) -> Block:
    wall, cpu = [], []
    for _ in range(CYCLES):
        began, worked = time.perf_counter(), time.thread_time()
        cycle()
        wall.append(time.perf_counter() - began)
        cpu.append(time.thread_time() - worked)
        time.sleep(PAUSE)
    return Block(tuple(wall), tuple(cpu))


def _answers(loads: list[Load]) -> Section:
    times = sorted(seconds for load in loads for seconds in load.seconds)
    length = sum(load.length for load in loads)
    return Section(
        f"GET /chains of {SIZE.chains} chains, {RATE} requests/s, beside the loop on one machine",
        (
            ("requests", f"{len(times):,} in {length:.0f} s ({len(times) / length:.0f}/s)"),
            ("not answered with 200", f"{sum(load.failed for load in loads)}"),
            ("load average, processors", f"{os.getloadavg()[0]:.1f}, {os.cpu_count()}"),
            ("size of an answer", f"{loads[0].bytes / 1e3:.0f} kB"),
            ("p50", f"{1e3 * statistics.median(times):.1f} ms"),
            ("p99", f"{1e3 * times[int(0.99 * len(times))]:.1f} ms"),
            ("longest", f"{1e3 * times[-1]:.1f} ms"),
        ),
    )


def _cycles(idle: list[Block], busy: list[Block]) -> Section:
    wall = _compared([block.wall for block in idle], [block.wall for block in busy])
    cpu = _compared([block.cpu for block in idle], [block.cpu for block in busy])
    rows = (("real time", wall), ("processor time of the loop's thread", cpu))
    return Section(f"One cycle, median of {len(idle) * CYCLES} each", rows)


def _compared(idle: list[tuple[float, ...]], busy: list[tuple[float, ...]]) -> str:
    without, under = (
        statistics.median(seconds for block in blocks for seconds in block) for blocks in (idle, busy)
    )
    return f"{without:.3f} s without load, {under:.3f} s under it: x {under / without:.2f}"
