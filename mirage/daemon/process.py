"""``mirage daemon``: begin with ``run_daemon``. Also which keys of a new configuration apply without a restart."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirage import __version__
from mirage.config.loading import settings
from mirage.config.model import Config
from mirage.config.places import remark_on
from mirage.control.clocks import WallTicks
from mirage.control.leader_election import Tenure
from mirage.daemon.adopting import EVERY, AdoptionWatch
from mirage.daemon.brief import BriefRun
from mirage.daemon.chores import Chore, Housekeeping, learning_chores, restored_query
from mirage.daemon.host import (
    SignalWatch,
    SystemdNotifier,
    UsersOutdated,
    check_user_files,
    keep_heap_small,
    settle,
)
from mirage.daemon.logs import set_up_logging
from mirage.daemon.state_directory import (
    HEARTBEAT,
    AlreadyRunning,
    Heartbeat,
    check_database,
    keep_files_private,
    make_folder,
    make_private_folder,
    single_instance,
)
from mirage.daemon.supervision import Standby, Supervisor, open_lease_renewer
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.bootstrap.service import DaemonService
    from mirage.config.loading import Loaded
    from mirage.control.status import Cycle, Status
    from mirage.daemon.brief import Term
    from mirage.daemon.supervision import LeaseRenewer

RELOADED_AT_ONCE = ("loop", "predictors", "limits", "log")
"""Sections that the running daemon takes over; so are the retention times of the database."""
_KEPT_AGES = ("store", "retention")


@dataclass(frozen=True, slots=True)
class Reload:
    """A new configuration as the running daemon can have it."""

    config: Config
    """The old configuration with all immediately applicable values of the new one."""
    changed: tuple[str, ...]
    """Keys that hold from now on."""
    waiting: tuple[str, ...]
    """Keys that hold after a restart."""


def plan_reload(old: Config, new: Config) -> Reload:
    """The values of ``new`` that apply now, and the keys that wait for a restart."""
    before = dict(settings(old))
    differing = [key for key, value in settings(new) if before[key] != value]
    store = old.store.model_copy(update={"retention": new.store.retention})
    taken = old.model_copy(update={name: getattr(new, name) for name in RELOADED_AT_ONCE} | {"store": store})
    return Reload(
        taken,
        tuple(".".join(key) for key in differing if _at_once(key)),
        tuple(".".join(key) for key in differing if not _at_once(key)),
    )


def _at_once(key: tuple[str, ...]) -> bool:
    return key[0] in RELOADED_AT_ONCE or key[:2] == _KEPT_AGES


_LOG = logging.getLogger(__name__)

Build = Callable[[Config, Callable[[], None], "Tenure"], "DaemonService"]
"""Builds the service of a configuration, for a term or as a standby; the service calls the second argument after
every step of the loop."""

_KEEP_HOUSE_EVERY = 6 * 3_600
_SHORTEST_CHORE = 30.0
_LOOK_AT_INTERFACE_EVERY = 5.0
_CHECK_USERS_EVERY = 5.0
_RESTART = 75
"""Exit status (EX_TEMPFAIL) where another process would do better: the unit starts one."""
_END_IF_UNUSED_EVERY = 0.5
LOOKED_AT = "looked-at-jobs.json"
_OF_A_BRIEF_RUN = ("restored", "standings")
"""Chores of the leader that cannot wait for a day's first call."""
_REFRESH_ACCESS_EVERY = 10.0
"""Seconds after which keys and the policy are read again where no request has them read."""


def run_daemon(load: Callable[[], Loaded], build: Build, *, once: bool = False, brief: Term | None = None) -> int:
    """Run until a signal asks to end, for one cycle (``once``), or for a ``brief`` time; returns the exit status.

    ``load`` reads the configuration, at each reload again. Raises ``MirageError`` where the service cannot be
    started: ``AlreadyRunning``, ``ConfigError`` and what ``build`` raises.
    """
    keep_heap_small()
    loaded = load()
    config = loaded.config
    set_up_logging(config.log.level, config.log.format)
    with loaded.explaining():
        state = make_private_folder(Path(config.service.state), "service.state")
        make_folder(Path(config.service.runtime), 0o755, "service.runtime")
    keep_files_private()
    if remark := remark_on(state):
        _LOG.warning("event=state_directory text=%r", remark)
    with single_instance(state / "daemon.lock"), ExitStack() as closing:
        notifier = SystemdNotifier(os.environ)
        with loaded.explaining():
            check_database(config.store.url, state / HEARTBEAT)
            office = closing.enter_context(open_lease_renewer(config))
        if brief is not None and not office.await_term(insisting=brief.insists) and brief.reports:
            raise AlreadyRunning(f"{office.campaign.leader or 'no daemon'} leads")
        if once and (why := Tenure.of(office.campaign).impediment()):
            raise MirageError(f"{why}: only the leader polls the cluster and decides")
        while True:
            # A new leader starts from the database, so that no stale state in memory remains.
            notifier.alive()
            with loaded.explaining():
                service = build(loaded.config, notifier.alive, Tenure.of(office.campaign))
            service.origin = loaded.origin
            with ExitStack() as ending:
                ending.callback(_close, service)
                daemon = _Daemon(service, load, notifier, office, brief)
                if once:
                    return daemon.run_once()
                daemon.run(ending)
            if daemon.told_to_end:
                break
        notifier.stopping()
    return daemon.status


def leave(status: int) -> None:
    """End the process, also while a thread hangs (a predictor, an import): its result is not needed.

    Python itself would wait for the threads of every pool, daemonic ones too.
    """
    logging.shutdown()
    if threading.active_count() > 1:
        os._exit(status)
    raise SystemExit(status)


class _Daemon:
    """One service, its waits, and its word to the outside."""

    def __init__(
        self,
        service: DaemonService,
        load: Callable[[], Loaded],
        notifier: SystemdNotifier,
        office: LeaseRenewer,
        brief: Term | None = None,
    ) -> None:
        self._service = service
        self._load = load
        self._office = office
        self._turns = Supervisor(service) if service.tenure.term else Standby(service)
        self._notifier = notifier
        state = Path(service.config.service.state)
        self._heartbeat = Heartbeat(state / HEARTBEAT)
        self._brief = None if brief is None else BriefRun(brief, state, service.clock.rate)
        self._adoption = _adoption(service, state)
        self._reload_asked = threading.Event()
        self._ended = threading.Event()
        self.status = 0
        """With which the process is to exit."""
        every = self._notifier.watchdog_seconds / 2 or 3_600.0
        alive = self._notifier.alive
        self._ticks = WallTicks(
            service.clock, service.pace, service.commands, alive, every, lambda: service.answer_question(alive)
        )
        service.reload = self._ask_reload
        office.changed = service.commands.wake

    @property
    def told_to_end(self) -> bool:
        """Whether the process is to end: after ``run``, and until the signals of its term are given back."""
        return self._ticks.stopped

    def run(self, closing: ExitStack) -> None:
        """Cycle until stopped or another term begins; ``closing`` gets what has to be closed then."""
        closing.callback(SignalWatch(self._ticks.stop, self._ask_reload).close)
        _LOG.info(
            "event=daemon_started version=%s pid=%d predictor=%s",
            __version__,
            os.getpid(),
            self._service.config.loop.predictor,
        )
        if self._brief is None:
            self._open(closing)
        cycle = self._cycle()
        if self._brief is not None:  # its first answers are about the present, not about the last call
            self._open(closing)
        settle()
        closing.callback(Housekeeping(self._chores()).close)
        closing.callback(self._ended.set)
        self._notifier.ready()
        self._note_call()
        while self._in_office and self._ticks.wait(cycle.wake, cycle.deciding):
            if self._reload_asked.is_set():
                self._reload()
            if self._in_office:
                cycle = self._cycle()
        if self.told_to_end:
            if self._brief is not None:
                self._brief.report()
            cycles = self._service.loop.status.cycles
            _LOG.info("event=daemon_stopped cycles=%d text=%r", cycles, "the chains' jobs stay on the cluster")
        else:
            term = self._office.campaign.term
            _LOG.warning("event=leadership_%s term=%d", "gained" if term else "lost", term)

    def run_once(self) -> int:
        """Run one cycle; returns the exit status, 1 if the cycle failed."""
        if self._service.restored is not None:
            restored_query(self._service, self._ended).run()
        self._cycle()
        return 1 if self._turns.failures else 0

    @property
    def _in_office(self) -> bool:
        """Whether the service is still the one for how things stand."""
        return self._office.campaign.term == self._service.tenure.term

    def _ask_reload(self) -> None:
        """Read the configuration again before the next cycle, which starts immediately. Any thread."""
        self._reload_asked.set()
        self._service.commands.wake()

    def _open(self, closing: ExitStack) -> None:
        """Start the API, so that it answers also while the first poll hangs. Raises ``ConfigError``."""
        if self._service.interface is not None:
            self._service.interface.start()
            closing.callback(self._service.interface.stop)

    def _chores(self) -> tuple[Chore, ...]:
        """Return the periodic chores; most of them are the leader's."""
        service, every = self._service, max(_SHORTEST_CHORE, _KEEP_HOUSE_EVERY / self._service.clock.rate)
        reopening = Chore("interface", _LOOK_AT_INTERFACE_EVERY, _LOOK_AT_INTERFACE_EVERY, self._reopen)
        users = Chore("users", _CHECK_USERS_EVERY, _CHECK_USERS_EVERY, self._check_users)
        access = Chore("access", _REFRESH_ACCESS_EVERY, _REFRESH_ACCESS_EVERY, service.refresh_access)
        adopting = () if self._adoption is None else (Chore("adoption", EVERY, 0.0, self._adoption.run),)
        if self._brief is not None:
            ending = Chore("unused", _END_IF_UNUSED_EVERY, _END_IF_UNUSED_EVERY, self._end_if_unused)
            learning = learning_chores(service, self._ended) if service.tenure.term else ()
            return (
                ending,
                access,
                users,
                *adopting,
                *(chore for chore in learning if chore.name in _OF_A_BRIEF_RUN),
            )
        if not service.tenure.term:
            return (reopening, access, users)
        retention = Chore("retention", every, min(every, 600.0), self._prune)
        return (retention, reopening, access, users, *adopting, *learning_chores(service, self._ended))

    def _reopen(self) -> str:
        """Restart an API server that has ended; the loop continues meanwhile."""
        interface = self._service.interface
        if interface is None:
            return ""
        if interface.running:
            return f"it answers at {interface.url} again" if interface.reach_out() else ""
        interface.stop()
        interface.start()
        return "the API server had ended and answers again"

    def _end_if_unused(self) -> str:
        """End a brief daemon that no client uses."""
        interface = self._service.interface
        assert self._brief is not None, "only a brief daemon ends by itself"
        if self._adoption is not None and self._adoption.busy:
            return ""
        if interface is not None and interface.visible:
            if self._brief.over(interface.requests, interface.connections):
                interface.hide()  # what has just found it is answered still
            return ""
        if interface is None and not self._brief.over(0, 0):
            return ""
        if interface is not None and interface.connections:
            return ""
        stale = bool(self._service.tenure.term) and self._service.loop.status.snapshot.stale
        self.status = 1 if self._turns.failures or stale else 0
        self._ticks.stop()
        return ""

    def _note_call(self) -> None:
        """Keep house in a brief daemon once a day, and note its call for later commands."""
        if self._brief is None:
            return
        try:
            if daily := self._brief.is_first_of_day and bool(self._service.tenure.term):
                self._prune()
            self._brief.note(daily=daily)
        except (MirageError, OSError) as error:
            _LOG.warning("event=call_not_noted error=%r", str(error))

    def _check_users(self) -> str:
        """End where user names are out of date: a user must not be taken for another one."""
        try:
            check_user_files()
        except UsersOutdated as error:
            _LOG.error("event=users_outdated text=%r", f"{error}; the daemon stops for a restart")
            self.status = _RESTART
            self._ticks.stop()
        return ""

    def _cycle(self) -> Cycle:
        cycle = self._turns.cycle()
        if self._brief is not None:
            self._brief.cycled(cycle, self._service.clock.now())
        status = self._service.loop.status
        cycles, decided = status.cycles, status.decided
        fields = {"kind": "cycle", "cycle": cycles, "decided_s": {k: round(v, 4) for k, v in decided.items()}}
        _LOG.debug("%s", cycle.sentence, extra={"fields": fields})
        self._notifier.status(_summary(status))
        self._notifier.alive()
        self._service.pace.rest(cycle.calm)
        due_s = self._service.pace.at_most / self._service.clock.rate
        stuck, outdated = self._service.guards.stuck, "; ".join(self._service.outdated)
        self._heartbeat.beat(cycles, cycle.sentence, self._turns.failures, due_s, stuck, outdated)
        return cycle

    def _reload(self) -> None:
        self._reload_asked.clear()
        self._notifier.reloading()
        try:
            loaded = self._load()
            plan = plan_reload(self._service.config, loaded.config)
            with loaded.explaining():
                self._service.reconfigure(plan.config)
            self._service.origin = loaded.origin
        except MirageError as error:
            _LOG.error("event=reload_failed error=%r text=%r", str(error), "the old configuration stays in force")
        else:
            set_up_logging(plan.config.log.level, plan.config.log.format)
            _LOG.info("event=configuration_reloaded changed=%s", ",".join(plan.changed) or "none")
            if plan.waiting:
                _LOG.warning("event=restart_needed keys=%s", ",".join(plan.waiting))
        self._notifier.ready()

    def _prune(self) -> str:
        deleted = {name: count for name, count in self._service.prune().items() if count}
        return f"deleted {deleted}" if deleted else "nothing is too old"


def _adoption(service: DaemonService, state: Path) -> AdoptionWatch | None:
    """What adopts jobs of plain ``sbatch``: the leader's, where an API is there to which they are reported."""
    wanted = service.config.chains.adopt == "marked" and service.tenure.term and service.interface is not None
    if not wanted or service.adopter is None:
        return None
    told = service.watching.not_adopted
    return AdoptionWatch(service.adopter, lambda: service.loop.status, state / LOOKED_AT, told)


def _close(service: DaemonService) -> None:
    for asked in service.commands.take_all():
        asked.answer.set_exception(MirageError("the daemon is stopping; retry once it runs again"))
    try:
        service.close()
    except MirageError as error:
        _LOG.error("event=journal_entries_lost error=%r", str(error))


def _summary(status: Status) -> str:
    """Return the status for systemd, which all users can read: it names no chain."""
    count = Counter(str(record.status) for record in status.chains)
    chains = ", ".join(f"{number} {name}" for name, number in sorted(count.items())) or "none"
    return f"cycle {status.cycles}; chains: {chains}"
