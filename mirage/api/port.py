"""All that the API needs of the daemon."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mirage.api.access.gate import Gate
from mirage.api.chainindex import ChainIndex
from mirage.api.taskstate.watch import TaskWatch
from mirage.domain.files import NOT_CHECKED

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from concurrent.futures import Future

    from mirage.api.feed import Feed
    from mirage.backends.acting.links_only import Identity
    from mirage.backends.acting.orderdesk import OrderDesk
    from mirage.control.guard import Asker, Guard
    from mirage.control.questions import Foresight, Question
    from mirage.control.status import Status
    from mirage.domain.chain import ChainId
    from mirage.domain.command import Command
    from mirage.domain.files import FileState, WatchedFile
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.journal import Entry
    from mirage.predictors.artifacts.shelf import Version
    from mirage.replay.runs import ReplayRuns
    from mirage.replay.shadows import Measured
    from mirage.store.answers import AnswerStore
    from mirage.store.audit import AuditLog
    from mirage.store.journal import SqlJournal


def _wall() -> Seconds:
    return int(time.time())


@dataclass(frozen=True, slots=True)
class Inquiries:
    """What may be asked of predictors."""

    ask: Callable[[Question], Future[Foresight]]
    """Puts a question before the loop. Raises ``TooManyQuestions``."""
    named: Callable[[str, Asker], Guard | None]
    """A predictor by its name; ``None``: it is asked anyway. May take seconds; raises ``PluginNotFound`` and
    ``ConfigError``."""
    measured: Callable[[JobRequest | str | None], Sequence[Measured]]
    """How good their forecasts have been, at all handovers, at those in a partition, or at those of such jobs.
    May take seconds; raises ``StoreUnavailable``."""
    compared: Callable[[Seconds], Sequence[Measured]] = lambda span: ()
    """The same on the handovers of the last N seconds, with estimates of the predictors' own handovers. May
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
    """What the daemon measures of itself, and the messages that it sends."""

    expose: Callable[[str], tuple[bytes, str]] = _nothing_measured
    """The metrics for a scrape's ``Accept``, and how their format is called."""
    scrapers: str = "nobody"
    """Who may scrape without saying who they are: ``nobody``, ``loopback`` or ``anybody``."""
    test: Callable[[str], Mapping[str, str]] = _nobody_told
    """Sends a test message by each channel, on behalf of somebody; what came of it by the channels' names. Takes
    seconds."""


class Models(Protocol):
    """The predictors that are installed, and the trained models that are kept."""

    def installed(self) -> tuple[str, ...]:
        """Names of all predictors."""

    def at_work(self) -> tuple[str, tuple[str, ...], str]:
        """As the configuration names them: in charge, in shadow, and who answers in their place."""

    def versions(self) -> tuple[Version, ...]:
        """Every trained model that is kept. Raises ``ArtifactMismatch``."""

    def in_shadow(self) -> Container[str]:
        """Versions that the daemon itself compares with the active predictor, as ``NAME:VERSION``."""

    def damage(self, version: Version) -> str:
        """Why a version cannot be used, empty if it can. Takes seconds where its files were not read before."""

    def promote(self, name: str, version: str, *, force: bool) -> Version:
        """Put a version in use. Raises ``ConfigError`` where it has done worse in shadow, unless ``force``."""

    def rollback(self, name: str) -> Version:
        """Put the version in use again that was before. Raises ``ConfigError`` where there is none."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration."""

    key: str
    value: object
    source: str
    """File and line, variable, or ``default``."""


@dataclass(frozen=True, slots=True)
class ApiService:
    """The daemon as the API sees it; every callable may be called from any thread."""

    status: Callable[[], Status]
    """The state after the last cycle."""
    ask: Callable[[Command], Future[str]]
    """Puts a command before the loop."""
    entries: Callable[[ChainId, int], Sequence[Entry]]
    """The last so many entries of the journal about a chain, newest first. May raise ``StoreUnavailable``."""
    desk: OrderDesk | None = None
    """Where users' agents fetch their orders; ``None`` where links are submitted in another way."""
    chain_defaults: Mapping[str, Any] = field(default_factory=dict)
    """What a new chain gets where its owner does not say, in the form of a chain's document."""
    releases_links: bool = False
    """Whether the daemon releases links that their owners have submitted held, and submits none."""
    check_request: Callable[[JobRequest], None] = lambda _: None
    """Raises ``SubmissionRejected`` for what no link could be submitted with; may take seconds."""
    identify: Callable[[JobId, str], Identity] | None = None
    """Asks Slurm about a job of an owner; may take seconds, raises ``UnknownJob``, ``NotPermitted`` and
    ``ClusterUnavailable``. ``None``: there are no jobs but the daemon's."""
    patience: float = 60.0
    """Seconds that a command may wait for the loop."""
    journal: SqlJournal | None = None
    """What happened and was decided, page by page."""
    feed: Feed | None = None
    """The same as it happens."""
    inquiries: Inquiries | None = None
    cycle_seconds: Callable[[], float | None] = lambda: None
    """Real seconds that the last cycle took."""
    about_cluster: Callable[[], tuple[str, str | None]] = lambda: ("", None)
    """The backend, and Slurm's version where it is known. May take seconds at first."""
    hides_jobs: Callable[[], bool] = lambda: False
    """Whether Slurm keeps ordinary users from the jobs of others, or that is not known."""
    models: Models | None = None
    configuration: Callable[[], Sequence[Setting]] = list
    """Every key, secrets hidden."""
    replays: ReplayRuns | None = None
    gate: Gate = field(default_factory=Gate)
    """Who comes in, and how far."""
    url: Callable[[], str] = str
    """Where browsers find the daemon; empty: nowhere."""
    frame_ancestors: tuple[str, ...] = ()
    """Origins that may show the page within theirs."""
    audit: AuditLog | None = None
    """Who did what."""
    answers: AnswerStore | None = None
    """What was answered under a key."""
    index: ChainIndex = field(default_factory=ChainIndex)
    """Chains of the last status by their IDs and owners."""
    now: Callable[[], Seconds] = _wall
    """Slurm's clock."""
    tasks: TaskWatch = field(default_factory=TaskWatch)
    """How tasks within links stand."""
    telemetry: Telemetry = field(default_factory=Telemetry)
    impediment: Callable[[], str] = str
    """Why this daemon may change nothing, such as that another leads; empty: it leads. Waits for nothing."""
    check_room: Callable[[str], None] = lambda owner: None
    """Raises ``QuotaExceeded`` where this user may have no further chain, as of the last cycle."""
    check_files: Callable[[Sequence[WatchedFile]], Sequence[FileState]] = _not_checked
    """What a check of these files finds, in their order. Takes seconds."""
    readiness: Callable[[], Mapping[str, str]] = dict
    """What is wrong with each part of the daemon; empty: nothing."""
    ending: Callable[[], bool] = bool
    """Whether the server ends: what waits for something to happen is to be answered now."""
