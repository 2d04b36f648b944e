"""All that the API needs from the daemon.

Chains are found by an index: the time of a look-up must not show which chains of other users exist.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mirage.api.access.authentication import Authenticator
from mirage.api.taskwatch import TaskWatch
from mirage.domain.files import NOT_CHECKED

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from concurrent.futures import Future

    from mirage.api.feed import Feed
    from mirage.backends.agent_queue import AgentQueue
    from mirage.backends.links_only import JobIdentity
    from mirage.control.guard import Asker, PredictorGuard
    from mirage.control.prediction_requests import PredictionRequest, PredictionResult
    from mirage.control.status import Status
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.command import Command
    from mirage.domain.files import FileState, WatchedFile
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.predictors.model_registry import Version
    from mirage.replay.runs import ReplayRuns
    from mirage.replay.shadows import ShadowScore
    from mirage.store.access import AuditLog, IdempotencyStore
    from mirage.store.journal import SqlJournal


@dataclass(frozen=True, slots=True)
class _BuiltIndex:
    records: Sequence[ChainRecord]
    by_id: Mapping[str, ChainRecord]
    by_owner: Mapping[str, Sequence[ChainRecord]]


class ChainIndex:
    """Chains by ID and by owner, built once per state of the daemon. Any thread may use it.

    A look-up takes the same time for an unknown ID. One among a user's chains depends on the number of these.
    """

    def __init__(self) -> None:
        self._built = _BuiltIndex((), {}, {})

    def find(self, records: Sequence[ChainRecord], chain_id: ChainId) -> ChainRecord | None:
        """Return the chain with this ID, or ``None``; the first if there are two."""
        return self._of(records).by_id.get(chain_id)

    def owned(self, records: Sequence[ChainRecord], owner: str) -> Sequence[ChainRecord]:
        """Return the chains of this user, in order."""
        return self._of(records).by_owner.get(owner, ())

    def _of(self, records: Sequence[ChainRecord]) -> _BuiltIndex:
        built = self._built
        if built.records is not records:
            by_id: dict[str, ChainRecord] = {}
            by_owner: dict[str, list[ChainRecord]] = {}
            for record in records:
                by_id.setdefault(record.chain.chain_id, record)
                by_owner.setdefault(record.chain.owner, []).append(record)
            built = self._built = _BuiltIndex(records, by_id, by_owner)
        return built


def _wall() -> Seconds:
    return int(time.time())


@dataclass(frozen=True, slots=True)
class Inquiries:
    """Access to the predictors."""

    ask: Callable[[PredictionRequest], Future[PredictionResult]]
    """Passes a prediction request to the loop. Raises ``TooManyQuestions``."""
    named: Callable[[str, Asker], PredictorGuard | None]
    """Returns a predictor by name; ``None`` if it is used anyway. May take seconds; raises ``PluginNotFound`` and
    ``ConfigError``."""
    measured: Callable[[JobRequest | str | None], Sequence[ShadowScore]]
    """Past errors of the predictors: for all handovers, those in a partition, or those of similar jobs. May take
    seconds; raises ``StoreUnavailable``."""
    compared: Callable[[Seconds], Sequence[ShadowScore]] = lambda span: ()
    """The same for the handovers of the last N seconds, with estimated costs of the predictors' own decisions. May
    take longer."""


def _nothing_measured(accept: str) -> tuple[bytes, str]:
    del accept
    return b"", "text/plain; charset=utf-8"


def _not_checked(files: Sequence[WatchedFile]) -> Sequence[FileState]:
    return [NOT_CHECKED for _ in files]


def _nobody_told(asker: str) -> Mapping[str, str]:
    del asker
    return {}


@dataclass(frozen=True, slots=True)
class Telemetry:
    """Metrics of the daemon, and its notification channels."""

    expose: Callable[[str], tuple[bytes, str]] = _nothing_measured
    """Returns the metrics and their content type, for a scrape's ``Accept`` header."""
    scrapers: str = "nobody"
    """Who may scrape without credentials: ``nobody``, ``loopback`` or ``anybody``."""
    test: Callable[[str], Mapping[str, str]] = _nobody_told
    """Sends a test message through each channel for a user; returns the result by channel name. Takes seconds."""


class Models(Protocol):
    """Installed predictors, and the model registry."""

    def installed(self) -> tuple[str, ...]:
        """Return the names of all predictors."""

    def at_work(self) -> tuple[str, tuple[str, ...], str]:
        """Return the configured active predictor, shadow predictors and fallback."""

    def versions(self) -> tuple[Version, ...]:
        """Return all stored versions of trained models. Raises ``ArtifactMismatch``."""

    def in_shadow(self) -> Container[str]:
        """Return the versions that the daemon runs in shadow, as ``NAME:VERSION``."""

    def damage(self, version: Version) -> str:
        """Return why a version cannot be used; empty if it can. Takes seconds at the first call."""

    def promote(self, name: str, version: str, *, force: bool) -> Version:
        """Promote a version. Raises ``ConfigError`` if it performed worse in shadow, unless ``force``."""

    def rollback(self, name: str) -> Version:
        """Return to the version in use before. Raises ``ConfigError`` without one."""


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A configuration key with its value and source."""

    key: str
    value: object
    source: str
    """File and line, environment variable, or ``default``."""


@dataclass(frozen=True, slots=True)
class ApiService:
    """The daemon as the API sees it; every callable may be called from any thread."""

    status: Callable[[], Status]
    """Returns the state after the last cycle."""
    ask: Callable[[Command], Future[str]]
    """Passes a command to the loop."""
    entries: Callable[[ChainId, int], Sequence[Entry]]
    """Returns the last N journal entries of a chain, newest first. May raise ``StoreUnavailable``."""
    desk: AgentQueue | None = None
    """Requests to the users' agents; ``None`` if the daemon does not use agents."""
    chain_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Default settings of a new chain, in the form of a chain's document."""
    releases_links: bool = False
    """Whether the daemon only releases held links that their owners have submitted."""
    check_request: Callable[[JobRequest], None] = lambda _: None
    """Raises ``SubmissionRejected`` for a request that Slurm would reject; may take seconds."""
    identify: Callable[[JobId, str], JobIdentity] | None = None
    """Queries Slurm for a job of an owner; may take seconds, raises ``UnknownJob``, ``NotPermitted`` and
    ``ClusterUnavailable``. ``None``: the cluster has only the daemon's jobs."""
    patience: float = 60.0
    """Timeout of a command to the loop, in seconds."""
    journal: SqlJournal | None = None
    """The journal."""
    feed: Feed | None = None
    """Live events of the journal."""
    inquiries: Inquiries | None = None
    cycle_seconds: Callable[[], float | None] = lambda: None
    """Returns the duration of the last cycle, in real seconds."""
    about_cluster: Callable[[], tuple[str, str | None]] = lambda: ("", None)
    """Returns backend and Slurm version, if known. The first call may take seconds."""
    hides_jobs: Callable[[], bool] = lambda: False
    """Returns whether Slurm hides jobs of others from users, or that is unknown."""
    models: Models | None = None
    configuration: Callable[[], Sequence[EffectiveSetting]] = list
    """Returns all keys, secrets hidden."""
    replays: ReplayRuns | None = None
    gate: Authenticator = field(default_factory=Authenticator)
    """Authentication and scopes."""
    url: Callable[[], str] = str
    """Returns the URL of the web UI; empty: none."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins that may embed the web UI."""
    audit: AuditLog | None = None
    """The audit log."""
    answers: IdempotencyStore | None = None
    """Stored responses by idempotency key."""
    index: ChainIndex = field(default_factory=ChainIndex)
    """Index of chains by ID and owner."""
    now: Callable[[], Seconds] = _wall
    """Slurm's clock."""
    tasks: TaskWatch = field(default_factory=TaskWatch)
    """Task states within links."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    impediment: Callable[[], str] = str
    """Returns why this daemon may change nothing, such as another leader; empty: it leads. Never waits."""
    check_room: Callable[[str], None] = lambda owner: None
    """Raises ``QuotaExceeded`` if this user may have no further chain, as of the last cycle."""
    check_files: Callable[[Sequence[WatchedFile]], Sequence[FileState]] = _not_checked
    """Checks files; returns the results in order. Takes seconds."""
    readiness: Callable[[], Mapping[str, str]] = dict
    """Returns the problem of each part of the daemon; empty texts: none."""
    ending: Callable[[], bool] = bool
    """Returns whether the server is stopping, so that waiting requests must end now."""
