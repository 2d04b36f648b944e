"""The loop with all that it runs on."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.bootstrap.observability import Observability
from mirage.bootstrap.policies import build_guards, build_pacing, build_policy, models_in_shadow
from mirage.bootstrap.records import refill
from mirage.control.guard import Asker
from mirage.control.leader_election import SOLE
from mirage.domain.errors import MirageError
from mirage.provisioner.limits import KEPT_FOR_ONE
from mirage.store.opening import Retention

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.api.access.holders import Holders
    from mirage.api.server import ApiServer
    from mirage.backends.marked_jobs import Adopter
    from mirage.bootstrap.cluster import ClusterInfo
    from mirage.config.model import Config
    from mirage.control.clocks import Pace, RealTimeClock
    from mirage.control.commands import CommandQueue
    from mirage.control.guard import Guards
    from mirage.control.leader_election import Tenure
    from mirage.control.loop import ControlLoop
    from mirage.control.prediction_requests import PredictionQueue
    from mirage.control.restored import RestoredDatabase
    from mirage.control.self_driven import CallJobs
    from mirage.control.status import Status
    from mirage.features.summary import QueueWindows
    from mirage.replay.runs import ReplayRuns
    from mirage.store.jobs import StoredJobs
    from mirage.store.opening import Store


_LOG = logging.getLogger(__name__)


def _nothing() -> None:
    pass


def _unknown(key: tuple[str, ...]) -> str:
    del key
    return "unknown"


@dataclass(slots=True)
class DaemonService:
    """A loop with all that it runs on."""

    config: Config
    loop: ControlLoop
    guards: Guards
    store: Store
    clock: RealTimeClock
    pace: Pace
    commands: CommandQueue
    questions: PredictionQueue
    lore: ClusterInfo
    """Information on the cluster beyond its queue."""
    jobs: StoredJobs
    """The jobs of all users, from the database."""
    windows: QueueWindows
    watchers: tuple[Callable[[Status], None], ...] = ()
    """Called after each cycle by the loop's thread: must be quick, never wait and never raise."""
    watching: Observability = field(default_factory=Observability)
    """Metrics, and messages to people."""
    interface: ApiServer | None = None
    """Not started; ``None``: disabled."""
    in_shadow: tuple[str, ...] = ()
    """See ``models_in_shadow``; as of the start or the last change."""
    reload: Callable[[], None] = _nothing
    """Reads the configuration again before the next cycle. Any thread."""
    origin: Callable[[tuple[str, ...]], str] = _unknown
    """Source of the value of a key."""
    cycle_seconds: float | None = None
    """Real seconds that the last cycle took."""
    in_cycle: bool = False
    """Whether the loop is in a cycle. Any thread reads it."""
    replays: ReplayRuns | None = None
    """Those that people ask for; ``None``: none."""
    tenure: Tenure = SOLE
    """Whether it leads."""
    holders: Holders | None = None
    """``None``: the daemon acts for one user alone."""
    calls: CallJobs | None = None
    """Set where the links look after their chains."""
    restored: RestoredDatabase | None = None
    """Set if the database is a restored backup whose chains are not compared with Slurm yet."""
    adopter: Adopter | None = None
    """Adopts jobs of plain ``sbatch``; ``None``: no process of a user is there that could."""

    def answer_question(self, alive: Callable[[], None]) -> bool:
        """Answer one prediction request; return whether there was one. For the loop's thread, between cycles."""
        return self.questions.answer(lambda question: self.loop.foresee(question, alive))

    def check_clock(self, *, jumped: bool) -> None:
        """Look whether the clock is Slurm's; ``jumped``: this machine's was set. For the loop's thread."""
        if self.lore.clock is not None:
            self.lore.clock.check(jumped=jumped)

    def prepare_named(self, guards: Guards, seconds: float) -> None:
        """Build the predictors of live chains, for up to ``seconds``; until then the fallback decides for them."""
        until = time.monotonic() + seconds
        live = [record.chain for record in self.store.chains.load() if not record.over]
        for name, owner in sorted({(chain.predictor, chain.owner) for chain in live}):
            try:
                guards.prepare(name, max(0.0, until - time.monotonic()), Asker(owner))
            except MirageError as error:
                _LOG.warning(
                    "event=predictor_unavailable error=%r text=%r", str(error), "loop.fallback decides instead"
                )

    def tell_cycle(self) -> None:
        """Notify the watchers of a stored cycle; one that raises does not affect the others."""
        if self.calls is not None:
            self.calls.keep(self.loop.status)
        for watcher in self.watchers:
            try:
                watcher(self.loop.status)
            except Exception:
                _LOG.exception(
                    "event=internal_error text=%r", "cycle watcher: bug in Mirage; report the traceback"
                )

    def reconfigure(self, config: Config) -> None:
        """Decide and look by another configuration; to be called between cycles.

        Only what ``mirage.bootstrap.policies`` builds is changed. Raises ``ConfigError``; all is then as it
        was.
        """
        took, threads = self.watching.meters.predicted, self.guards.threads
        guards = build_guards(config, self.lore, took, threads, self.in_shadow)
        self.watching.know(guards)
        self.prepare_named(guards, config.loop.budget)
        if guards.wants.window and not self.guards.wants.window:
            refill(self.windows, self.store.snapshots, self.clock.now())
        self.loop.reconfigure(guards, build_policy(config, self.clock.rate))
        self.guards.close()
        self.pace.pacing = build_pacing(config)
        self.guards, self.config = guards, config

    def models_changed(self) -> None:
        """Another model is in use, or in shadow: the next cycle decides by it. Not for the loop's thread."""
        self.in_shadow = models_in_shadow(self.config)
        self.reload()

    def stand_by(self, sentence: str) -> None:
        """Show what the leader has stored until now; for one that does not lead. Raises ``StoreUnavailable``."""
        self.store.stand_by()
        self.loop.stand_by(sentence)
        if self.interface is not None:
            self.interface.service.gate.tokens.forget()
        if self.holders is not None:
            self.holders.forget()

    @property
    def outdated(self) -> tuple[str, ...]:
        """Why an older key or policy is in force; empty: none is. Any thread; reads no file."""
        return self.interface.service.gate.outdated if self.interface is not None else ()

    def refresh_access(self) -> str:
        """Read keys and the policy again, and look whose the names of owners are. Any thread.

        Raises ``StoreUnavailable``.
        """
        if self.interface is not None:
            self.interface.service.gate.refresh()
        if self.holders is None:
            return ""
        names = {record.chain.owner for record in self.store.chains.load() if record.live or not record.over}
        if self.interface is not None:
            names |= {token.owner for token in self.interface.service.gate.tokens.of()}
        self.holders.review(sorted(names))
        return ""

    def prune(self) -> dict[str, int]:
        """Delete what is too old; how many of what. Any thread. Raises ``StoreUnavailable``."""
        retention = Retention(**self.config.store.retention.model_dump())
        kept = KEPT_FOR_ONE * self.config.limits.chains_per_user // 2
        return self.store.prune(retention, self.clock.now(), kept)

    def close(self) -> None:
        """Close threads and connections. Raises ``StoreUnavailable`` if the last entries are not on disk."""
        self.questions.close()
        if self.replays is not None:
            self.replays.close()
        self.guards.close()
        self.watching.close()
        self.store.close()
