"""Cycles that never end the process: an error is logged, and the next cycle runs."""

from __future__ import annotations

import logging
import time
import traceback
from typing import TYPE_CHECKING

from mirage.backends.seldom import Seldom
from mirage.control.cycle import Cycle
from mirage.control.wallclock import JumpWatch
from mirage.domain.errors import MirageError
from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from mirage.bootstrap.service import Service
    from mirage.control.faults import Fault

_LOG = logging.getLogger(__name__)


class Supervisor:
    """Runs the cycles of a service and recovers from failed ones."""

    def __init__(self, service: Service, jumps: JumpWatch | None = None) -> None:
        self._service = service
        self._jumps = jumps or JumpWatch()
        self._seen: set[str] = set()
        self._seldom = Seldom()
        self.failures = 0
        """Cycles failed in a row."""

    def cycle(self) -> Cycle:
        """One cycle, its journal on disk. One that fails is a hold: all is derived again by the next."""
        self._service.check_clock(jumped=self._notice_jump())
        began = time.monotonic()
        self._service.in_cycle = True
        try:
            cycle = self._attempt()
        finally:
            self._service.in_cycle = False
        self._service.cycle_seconds = took = time.monotonic() - began
        self._service.watching.meters.cycled(took, failed=bool(self.failures))
        self._tell(cycle.faults)
        return cycle

    def _tell(self, faults: tuple[Fault, ...]) -> None:
        """Count the errors of single chains and commands; those of a chain are logged once an hour each."""
        for fault in faults:
            self._service.watching.meters.chain_failed()
            if not fault.chain or self._seldom.allows(fault.text, fault.chain):
                about = (
                    {"kind": "chain-failed", "chain": fault.chain} if fault.chain else {"kind": "command-failed"}
                )
                _LOG.error("%s", fault.text, extra={"fields": about})
            if not isinstance(fault.error, MirageError):
                self._explain(fault.error)

    def _attempt(self) -> Cycle:
        try:
            cycle = self._service.loop.cycle()
            self._service.store.journal.flush()
            self._service.tell_cycle()
        except MirageError as error:
            return self._held(str(error))
        except Exception as error:
            self._explain(error)
            name = type(error).__name__
            return self._held(f"unexpected {name}: {error}", f"unexpected {name}; see the daemon's log")
        if self.failures:
            _LOG.info("event=cycle_recovered failed=%d", self.failures)
        self.failures = 0
        return cycle

    def _held(self, problem: str, shown: str = "") -> Cycle:
        """``shown``: what all users may see, where ``problem`` may quote one user's data."""
        self.failures += 1
        self._service.loop.status = self._service.loop.status.failing(shown or problem)
        self._service.pace.trouble()
        _LOG.error("%s", problem, extra={"fields": {"kind": "cycle-failed", "in-a-row": self.failures}})
        return Cycle(f"hold: {problem}", NEVER, deciding=True)

    def _explain(self, error: Exception) -> None:
        """The traceback, once for each place that raises."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} {frame.filename}:{frame.lineno}"
        if place not in self._seen:
            self._seen.add(place)
            _LOG.error("event=internal_error text=%r", "bug in Mirage; report the traceback", exc_info=error)

    def _notice_jump(self) -> bool:
        jump = self._jumps.jump()
        if jump:
            way = "forward" if jump > 0 else "back"
            _LOG.warning("event=clock_set direction=%s seconds=%.0f", way, abs(jump))
        return bool(jump)
