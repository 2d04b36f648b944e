"""Worker supervisor: start a worker, wait until it is ready, monitor it, restart it after a failure."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mirage.allocation.engine.discovery import visible
from mirage.allocation.engine.steps import EngineRefused, Launch
from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.worker_connections import BadFrame

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from mirage.allocation.engine.steps import Ending, Engine, StartedStep
    from mirage.allocation.inference.serving.worker_connections import WorkerConnection, WorkerListener

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_STEADY = 60.0
"""Seconds of work after which earlier failures no longer count."""
_HOPELESS = 5
"""Failures in a row after which requests no longer wait for a worker, though it is still restarted."""
_LOOK = 0.25
_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Seat:
    """Place and setup of a worker."""

    name: str
    node: str
    device: tuple[str, int] | None
    """Kind and index of its device on the node."""
    command: tuple[str, ...]
    setup: dict[str, Any]
    """The models to load."""
    units: tuple[int, ...]
    """Rows of the system: one for each request that it runs at the same time."""


class Crew(Protocol):
    """What a supervisor reports to."""

    def came(self, seat: Seat, link: WorkerConnection, models: dict[str, Any]) -> None:
        """The worker is ready. Raises ``BadFrame`` where its list of models is invalid."""

    def went(self, seat: Seat, *, coming: bool) -> None:
        """The worker has ended; ``coming``: it will be back soon."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all supervisors share."""

    engine: Engine
    hands: Executor
    """One thread: engines are called one at a time, and never by the event loop."""
    gate: WorkerListener
    folder: Path
    ready_within: float
    say: Callable[[str], None]


class WorkerSupervisor:
    """Keeps one worker running."""

    def __init__(self, seat: Seat, workshop: Workshop, crew: Crew) -> None:
        self.seat = seat
        self._shop, self._crew = workshop, crew
        self._lives = 0
        self._failures = 0
        self._link: WorkerConnection | None = None

    async def keep(self) -> None:
        """Run until cancelled; then the worker ends."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            why = await self._live()
            self._failures = 1 if clock() - began > _STEADY else self._failures + 1
            pause = min(_FIRST_PAUSE * 2 ** (self._failures - 1), _LONGEST_PAUSE)
            self._crew.went(self.seat, coming=self._failures < _HOPELESS)
            self._shop.say(f"unit {self.seat.name}: {why}; restart in {pause:.0f} s")
            await asyncio.sleep(pause)

    def kill(self) -> None:
        """End a worker that hangs."""
        if self._link is not None:
            self._link.abort()

    async def _live(self) -> str:
        """Run the worker once; returns why it ended."""
        secret, self._lives = addressbook.fresh(), self._lives + 1
        expected = self._shop.gate.expect(self.seat.name, secret, self.seat.setup)
        try:
            step = await self._ask(self._shop.engine.launch, self._launch(secret))
        except EngineRefused as error:
            return f"the worker could not start: {error}"
        ended = asyncio.create_task(self._end_of(step))
        try:
            patience = self._shop.ready_within
            await _first(expected.ready, ended, timeout=patience)
            if expected.ready.done():
                return await self._work(*expected.ready.result(), ended)
            return self._early(ended, patience)
        finally:
            await self._clear_away(step, ended)

    async def _work(self, link: WorkerConnection, models: dict[str, Any], ended: asyncio.Task[Ending]) -> str:
        try:
            self._crew.came(self.seat, link, models)
        except BadFrame as error:
            link.abort()
            return f"the worker is ended: {error}"
        self._link = link
        try:
            await _first(link.closed, ended)
        finally:
            link.abort()
            self._link = None
            # Its requests must not wait for the process to disappear.
            self._crew.went(self.seat, coming=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended), _GRACE)
        return f"the worker has ended{_told(ended)}"

    def _early(self, ended: asyncio.Task[Ending], patience: float) -> str:
        if ended.done():
            return f"the worker ended before it was ready{_told(ended)}; see {self._output}"
        return f"the worker was not ready within {patience:.0f} s; see {self._output}"

    async def _clear_away(self, step: StartedStep, ended: asyncio.Task[Ending]) -> None:
        if not ended.done():
            await self._ask(self._shop.engine.signal, step, "KILL")
            await asyncio.wait({ended}, timeout=_GRACE)
        ended.cancel()

    async def _end_of(self, step: StartedStep) -> Ending:
        while True:
            ending: Ending | None = await self._ask(self._shop.engine.poll, step)
            if ending is not None:
                return ending
            await asyncio.sleep(_LOOK)

    async def _ask(self, method: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._shop.hands, method, *arguments)

    @property
    def _output(self) -> Path:
        return self._shop.folder / f"{self.seat.name}.log"

    def _launch(self, secret: str) -> Launch:
        seat = self.seat
        kind, indices = (seat.device[0], [seat.device[1]]) if seat.device else ("", [])
        key = f"{seat.name}.{self._lives}"
        return Launch(
            key=key,
            path=self._shop.folder / key,
            command=seat.command,
            ranks={seat.node: 1},
            visible={seat.node: visible(kind, indices)},
            environment={
                addressbook.GATE: self._shop.gate.address,
                addressbook.SECRET: secret,
                addressbook.NAME: seat.name,
            },
            directory=str(self._shop.folder),
            output=self._output,
        )


async def _first(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Wait until one of them is done or the time is over; cancels none."""
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _told(ended: asyncio.Task[Ending]) -> str:
    if not ended.done():
        return ""
    ending = ended.result()
    code = "" if ending.code is None else f" with exit code {ending.code}"
    return f"{code}{f': {ending.said}' if ending.said else ''}"
