"""A worker's post: it is started, waited for, followed, and started again when it fails."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mirage.allocation.engine.discovery import visible
from mirage.allocation.engine.steps import EngineRefused, Launch
from mirage.allocation.inference.serving import proof
from mirage.allocation.inference.serving.frames import BadFrame

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from mirage.allocation.engine.steps import Ending, Engine, Step
    from mirage.allocation.inference.serving.links import Gate, Link

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_STEADY = 60.0
"""Seconds after which a worker that fails is forgiven earlier failures."""
_HOPELESS = 5
"""Failures in a row from which on nobody waits for it, though it is retried."""
_LOOK = 0.25
_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a worker stands and what it is."""

    name: str
    node: str
    device: tuple[str, int] | None
    """Kind and index on its node."""
    command: tuple[str, ...]
    setup: dict[str, Any]
    """What it is told to load."""
    units: tuple[int, ...]
    """Rows of the system: one for each request that it takes at once."""


class Crew(Protocol):
    """Whom a post tells of its worker."""

    def came(self, seat: Seat, link: Link, models: dict[str, Any]) -> None:
        """It is ready. Raises ``BadFrame`` where what it says of its models makes no sense."""

    def went(self, seat: Seat, *, coming: bool) -> None:
        """It is gone; ``coming``: it will be back before long."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all posts share."""

    engine: Engine
    hands: Executor
    """One thread: engines are not asked twice at once, and never by the event loop."""
    gate: Gate
    folder: Path
    ready_within: float
    say: Callable[[str], None]


class Post:
    """Keeps one worker at work."""

    def __init__(self, seat: Seat, workshop: Workshop, crew: Crew) -> None:
        self.seat = seat
        self._shop, self._crew = workshop, crew
        self._lives = 0
        self._failures = 0
        self._link: Link | None = None

    async def keep(self) -> None:
        """Until it is cancelled; the worker ends then."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            why = await self._live()
            self._failures = 1 if clock() - began > _STEADY else self._failures + 1
            pause = min(_FIRST_PAUSE * 2 ** (self._failures - 1), _LONGEST_PAUSE)
            self._crew.went(self.seat, coming=self._failures < _HOPELESS)
            self._shop.say(f"unit {self.seat.name}: {why}; started again in {pause:.0f} s")
            await asyncio.sleep(pause)

    def kill(self) -> None:
        """It hangs."""
        if self._link is not None:
            self._link.abort()

    async def _live(self) -> str:
        """One life of the worker; why it ended."""
        secret, self._lives = proof.fresh(), self._lives + 1
        expected = self._shop.gate.expect(self.seat.name, secret, self.seat.setup)
        try:
            step = await self._ask(self._shop.engine.launch, self._launch(secret))
        except EngineRefused as error:
            return f"it could not be started: {error}"
        ended = asyncio.create_task(self._end_of(step))
        try:
            patience = self._shop.ready_within
            await _first(expected.ready, ended, timeout=patience)
            if expected.ready.done():
                return await self._work(*expected.ready.result(), ended)
            return self._early(ended, patience)
        finally:
            await self._clear_away(step, ended)

    async def _work(self, link: Link, models: dict[str, Any], ended: asyncio.Task[Ending]) -> str:
        try:
            self._crew.came(self.seat, link, models)
        except BadFrame as error:
            link.abort()
            return f"its worker is ended: {error}"
        self._link = link
        try:
            await _first(link.closed, ended)
        finally:
            link.abort()
            self._link = None
            # What it was working on must not wait for the process to be gone.
            self._crew.went(self.seat, coming=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended), _GRACE)
        return f"its worker has ended{_told(ended)}"

    def _early(self, ended: asyncio.Task[Ending], patience: float) -> str:
        if ended.done():
            return f"its worker ended before it was ready{_told(ended)}, see {self._output}"
        return f"its worker was not ready within {patience:.0f} s, see {self._output}"

    async def _clear_away(self, step: Step, ended: asyncio.Task[Ending]) -> None:
        if not ended.done():
            await self._ask(self._shop.engine.signal, step, "KILL")
            await asyncio.wait({ended}, timeout=_GRACE)
        ended.cancel()

    async def _end_of(self, step: Step) -> Ending:
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
            environment={proof.GATE: self._shop.gate.address, proof.SECRET: secret, proof.NAME: seat.name},
            directory=str(self._shop.folder),
            output=self._output,
        )


async def _first(*futures: asyncio.Future[Any], timeout: float | None = None) -> None:
    """Until one of them is done, or the time is over; none is cancelled."""
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


def _told(ended: asyncio.Task[Ending]) -> str:
    if not ended.done():
        return ""
    ending = ended.result()
    code = "" if ending.code is None else f" with exit code {ending.code}"
    return f"{code}{f': {ending.said}' if ending.said else ''}"
