"""Cycles of a leader or a standby that never end the process, and renewal of the leader's lease.

An error is logged, and the next cycle runs. The lease has a thread, so that a long cycle cannot lose it.
"""

from __future__ import annotations

import logging
import time
import traceback
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from mirage.backends.seldom import Seldom
from mirage.bootstrap.leadership import open_campaign
from mirage.control.clocks import JumpWatch
from mirage.control.status import Cycle
from mirage.domain.errors import ConfigError, MirageError, StoreUnavailable
from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.bootstrap.service import DaemonService
    from mirage.config.model import Config
    from mirage.control.leader_election import LeaderElection
    from mirage.control.status import ChainFault

_LOG = logging.getLogger(__name__)

_FIRST_STEPS = 3
"""As many as it takes to look, to take a lease that is free, and to look again where another was faster."""
_PATIENCE = 15.0
"""Real seconds to wait for a running query as the process ends; a database may hang."""
_AFTER_FAULT = 5.0
_LOOK = 0.05
_BEYOND_A_LEASE = 10.0


def _nothing() -> None:
    pass


class LeaseRenewer:
    """Steps through the leader election until closed; its thread calls ``changed`` when the term changes."""

    def __init__(self, campaign: LeaderElection) -> None:
        self.campaign = campaign
        self.changed: Callable[[], None] = _nothing
        self._ended = Event()
        self._thread = Thread(target=self._run, name="office", daemon=True)

    def start(self) -> None:
        """Know whether this daemon leads when it returns; where the database does not answer, it does not."""
        for _ in range(_FIRST_STEPS):
            if self.campaign.step():
                break
        self._thread.start()

    def await_term(self, *, insisting: bool) -> bool:
        """Whether this daemon leads; waits as long as a lease lasts, for that of a daemon that was killed.

        Not ``insisting``: no longer than until another daemon renews its lease. It does not wait for a database
        that does not answer.
        """
        first = self.campaign.candidate.lease
        limit = time.monotonic() + self.campaign.candidate.terms.length + _BEYOND_A_LEASE
        while not self.campaign.term and self.campaign.answers and time.monotonic() < limit:
            lease = self.campaign.candidate.lease
            if not insisting and lease.holder == first.holder and lease.beat > first.beat:
                break
            time.sleep(_LOOK)
        return bool(self.campaign.term)

    def close(self) -> None:
        """Hand the lease back. Whatever only a leader may do must have ended before."""
        self._ended.set()
        self._thread.join(_PATIENCE)
        if not self._thread.is_alive():
            self.campaign.resign()

    def _run(self) -> None:
        term, wait = self.campaign.term, 0.0
        while not self._ended.wait(wait):
            wait = self._step()
            if self.campaign.term != term:
                term = self.campaign.term
                self.changed()

    def _step(self) -> float:
        try:
            return self.campaign.step()
        except Exception:
            _LOG.exception("event=internal_error text=%r", "lease renewal: bug in Mirage; report the traceback")
            return _AFTER_FAULT


@contextmanager
def open_lease_renewer(config: Config) -> Iterator[LeaseRenewer]:
    """An office on the configured store; raises as ``open_store``."""
    with open_campaign(config) as campaign:
        office = LeaseRenewer(campaign)
        office.start()
        try:
            yield office
        finally:
            office.close()


class Standby:
    """Takes turns as a ``Supervisor`` does, and asks Slurm for nothing."""

    def __init__(self, service: DaemonService) -> None:
        self._service = service
        self._said = ""
        self.failures = 0
        """Turns failed in a row."""

    def cycle(self) -> Cycle:
        """Read what is stored by now; a sentence that says who leads."""
        why = self._service.tenure.impediment()
        for asked in self._service.commands.take_all():
            asked.answer.set_exception(MirageError(f"this daemon does not act now: {why}"))
        sentence = f"stands by: {why}"
        if sentence != self._said:
            _LOG.info("event=standby reason=%r", why)
            self._said = sentence
        try:
            self._service.stand_by(sentence)
        except (StoreUnavailable, ConfigError) as error:
            self.failures += 1
            loop = self._service.loop
            loop.status = loop.status.failing(f"{why}; cannot read the stored chains: {error}")
            _LOG.warning("event=stored_state_unavailable error=%r", str(error))
        else:
            self.failures = 0
        return Cycle(sentence, NEVER, deciding=False)


class Supervisor:
    """Runs the cycles of a service and recovers from failed ones."""

    def __init__(self, service: DaemonService, jumps: JumpWatch | None = None) -> None:
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

    def _tell(self, faults: tuple[ChainFault, ...]) -> None:
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
