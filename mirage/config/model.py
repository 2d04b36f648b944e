"""All configuration keys: type, bounds, default and meaning.

Durations are whole seconds here; a file may also use ``"90s"``, ``"10m"``, ``"30d"``. An empty text means "not
set"; the key's text states the effect.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from mirage.config.values import (
    NUMBER,
    SECONDS,
    AboveZero,
    Count,
    DatabaseUrl,
    Duration,
    FileName,
    FileOrName,
    Positive,
    Price,
    Ratio,
    valid_aim,
)
from mirage.domain.bounds import LONGEST_PATH, MOST_NODES
from mirage.domain.chain import HandoverPolicy, Steering
from mirage.domain.journal import NoticeKind

_DAY = 86_400
Events = tuple[NoticeKind, ...]

_FOR_SITES = (NoticeKind.GAP, NoticeKind.STUCK, NoticeKind.PROTECTED, NoticeKind.UNREACHABLE)
_FOR_OWNERS = (NoticeKind.GAP, NoticeKind.DONE, NoticeKind.STUCK, NoticeKind.NOT_ADOPTED, NoticeKind.WEEK)


class ConfigSection(BaseModel):
    """Table of the configuration file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=LONGEST_PATH, allow_inf_nan=False)


class ServiceSection(ConfigSection):
    """Directories and name of the daemon."""

    state: FileName = ""
    """Directory of the database, lock and heartbeat. Empty: systemd's, else ~/.local/state/mirage, or
    /var/tmp/mirage-USER if that is on a network file system."""
    runtime: FileName = ""
    """Directory of the socket. Empty: systemd's, else /run/mirage for root, the state directory for others."""
    name: str = ""
    """Display name of this daemon if several share one database. Empty: the host name."""


class RestSection(ConfigSection):
    """slurmrestd connection (backend "rest" and acting mode "token")."""

    url: str = ""
    """URL, such as http://127.0.0.1:6820 or unix:/run/slurmrestd.socket."""
    token_file: FileName = ""
    """File with a JWT, read again at each use. Empty: the socket identifies the caller."""
    user: str = ""
    """User of that JWT. Empty: the daemon's user."""
    server_user: str = ""
    """Account of slurmrestd; required if it listens on a TCP port of this machine with a UID of 1000 or more.
    Mirage sends nothing to a server of any other such user."""


class SimulatedSection(ConfigSection):
    """Simulated cluster, for tests without Slurm (backend "simulated")."""

    cluster: FileOrName = "demo"
    """Cluster file, slurm.conf or name of a preset."""
    trace: FileOrName = "generated:demo:1"
    """Background load: a trace file, or generated:PRESET:SEED. Empty: no background load."""
    rate: AboveZero = 60.0
    """Speed: simulated seconds per real second."""


class ClusterConnectionSection(ConfigSection):
    """Connection to Slurm."""

    backend: Literal["cli", "rest", "pyslurm", "simulated"] = "cli"
    slurm_conf: FileName = ""
    """The slurm.conf that Slurm's commands use. Empty: their default."""
    timeout: Positive = 30
    """Timeout of a Slurm command or request, in seconds."""
    clock: FileName = ""
    """The clock.json of a Slurm testbed whose clock runs faster. Empty: the system clock."""
    rest: RestSection = RestSection()
    simulated: SimulatedSection = SimulatedSection()


class ActingSection(ConfigSection):
    """Submission identity: how Mirage submits jobs in a user's name."""

    mode: Literal["own", "agent", "release", "sudo", "token"] = "own"
    """own: as the daemon's user; agent: an agent process of each user; release: users submit held jobs, the
    daemon releases them; sudo: a helper program; token: slurmrestd with each user's JWT."""
    timeout: Positive = 60
    """Timeout of an action in a user's name, in seconds; the next snapshot then shows the result."""
    helper: FileName = "/usr/bin/mirage-act"
    """Mode sudo: helper program that sudo starts as the user."""
    tokens: FileName = ""
    """Mode token: directory with one JWT per user, USER.jwt, readable only by the daemon."""


class LoopSection(ConfigSection):
    """Decision loop."""

    interval: Positive = 60
    """Time between two polls, in Slurm's time; with acting.mode "own" five times as long while nothing is due."""
    jitter: Annotated[float, Field(ge=0, le=0.5), NUMBER] = 0.1
    """Random variation of each interval, as a fraction of it (0-0.5)."""
    longest_interval: Positive = 600
    """Maximum interval while Slurm is slow."""
    slow_answer: Positive = 5
    """A cycle whose Slurm queries take longer than this doubles the interval."""
    settle: Positive = 120
    """Submission grace period, in real time: a link that no snapshot shows by then is submitted again."""
    predictor: str = "auto"
    """Predictor that decides when to submit successors that are not pinned (see chains.steering), from "mirage
    plugins", such as fixed:6h. A trained one takes the path of its model (xgboost:/path/of/model) or uses the
    promoted model of the state directory. auto: the best available predictor."""
    shadows: tuple[str, ...] = ()
    """Shadow predictors: they predict, but decide nothing. "mirage models shadow" compares them."""
    fallback: str = "quantile"
    """Fallback predictor: decides if the active predictor fails, exceeds loop.budget or sees a queue unlike its
    training data. If the fallback fails too, reactive decides."""
    budget: AboveZero = 5.0
    """Timeout of a prediction, in seconds; after it the fallback decides."""
    level: Annotated[Ratio | None, Field(examples=[0.5])] = None
    """Quantile of the forecast start time that counts (0-1). Not set: the one of least expected cost."""
    margin: Duration = 0
    """Safety margin: a successor may start this long before its predecessor ends."""
    interruption_price: Price = 1.0
    """Cost of one second without a running link."""
    overlap_price: Price = 1.0
    """Cost of one second with two running links."""
    early_price: Price = 0.25
    """Cost of one second by which a link ends before its time limit because its successor started early."""


class LookaheadSection(ConfigSection):
    """Look-ahead: the predictor that simulates the next days (predictor "lookahead")."""

    cluster: FileOrName = ""
    """Cluster file, slurm.conf or name of a preset. Empty: the slurm.conf that the cluster has loaded."""


class PredictorsSection(ConfigSection):
    """Settings of single predictors."""

    lookahead: LookaheadSection = LookaheadSection()


class TrainingSection(ConfigSection):
    """Training of models by the daemon: on its recorded jobs, with a test on later weeks."""

    every: Duration = 7 * _DAY
    """Time between two trainings; 0: never. The first one runs when accounting has two weeks of jobs."""
    predictor: str = "auto"
    """Predictors to train. auto: random-forest and xgboost, if their plugins are installed."""
    promote: bool = True
    """Promote a model that is better than the current one. false: only "mirage models promote" does."""
    nodes: tuple[Annotated[int, Field(ge=1, le=MOST_NODES), NUMBER], ...] = (1, 8)
    """Link sizes to train for, in nodes."""
    limit: Positive = 48 * 3_600
    """Time limit of these links."""
    partition: str = ""
    """Partition of these links. Empty: the default partition."""
    span: Positive = 90 * _DAY
    """Period of job history used for training."""
    launcher: Literal["local", "slurm"] = "local"
    """local: a lowest-priority process next to the daemon; slurm: a job that shares the state directory."""


class ReplaysSection(ConfigSection):
    """Replays that users start through the API."""

    folder: FileName = ""
    """Directory of the traces and cluster files that users may name. Empty: only generated traces and presets."""
    most: Count = 8
    """Maximum number of replays that wait or run, one at a time; 0: replays are disabled."""
    memory_mb: Count = 1_280
    """Memory limit of a replay process, in MiB of data; 0: no limit. Above it: "out of memory"."""


class LimitsSection(ConfigSection):
    """Limits on what Mirage does; 0: no limit."""

    live_links: Count = 0
    """Links of all chains that are in the queue or running at the same time."""
    submissions_per_hour: Count = 600
    """Submissions of all users per hour. Each is one RPC that takes slurmctld's job write lock. Half of the total
    is divided evenly among the users with active chains; no other user can use that half."""
    submissions_per_hour_per_user: Count = 60
    """Submissions per hour of one user, over all chains of that user."""
    chains_per_user: Count = 100
    """Active chains of one user. Mirage keeps at most ten times as many chains of one user in total."""
    chains: Count = 2_000
    """Active chains of all users; half of them are divided evenly among the users."""
    stored_mb_per_user: Count = 64
    """Scripts and environments of one user's chains, in MiB. A finished chain has none."""
    stored_mb: Count = 512
    """Scripts and environments of all users, in MiB; half of it is divided evenly among the users."""
    pause_after_refusals: Count = 3
    """Consecutive rejections that no retry can fix, such as an unknown partition, after which a chain pauses; a
    chain that Slurm never accepted pauses at the first. Other rejections never pause a chain."""
    protect_after: Count = 5
    """Consecutive rejected chains, of those that Slurm had accepted before, that switch on protected mode: the
    daemon then holds all submissions except a periodic try (docs/observability.md)."""
    refusal_backoff: Duration = 300
    """Wait after a rejected submission; doubles with each consecutive one, up to max(15 min, this value)."""


class RetentionSection(ConfigSection):
    """Retention times, in Slurm's time."""

    decisions: Positive = 14 * _DAY
    """Journal entries that explain a decision: one per chain and cycle."""
    journal: Positive = 365 * _DAY
    """All other journal entries."""
    snapshots: Positive = 3 * _DAY
    waits: Positive = 90 * _DAY
    jobs: Positive = 180 * _DAY
    """Jobs of all users, by submit time: the training data."""
    outcomes: Positive = 730 * _DAY
    audit: Positive = 730 * _DAY
    chains: Positive = 180 * _DAY
    """Finished chains."""


class StoreSection(ConfigSection):
    """Database."""

    url: DatabaseUrl = ""
    """sqlite:////FILE (4 slashes), postgresql://USER@HOST/NAME, directory:///DIR. Empty: mirage.db in state."""
    lease: Annotated[int, Field(ge=3, le=3_600), SECONDS] = 45
    """Leader lease: real seconds of silence after which another daemon on the same database takes over."""
    snapshot_every: Duration = 600
    """Time between two snapshots kept for later evaluation; 0: none."""
    history: Duration = 60 * _DAY
    """Period of job history, of all users, read from accounting at the first start; 0: none."""
    retention: RetentionSection = RetentionSection()


class JwtSection(ConfigSection):
    """Slurm's tokens ("scontrol token") as login over the network. Without key and jwks Mirage accepts none."""

    key: FileName = ""
    """The site's jwt_hs256.key, readable only by the daemon. Read access to it allows login as any user."""
    jwks: FileName = ""
    """Public keys (a JWKS file) for tokens signed with RS256."""
    user_claim: str = "sun"
    """Claim with the user name; the same as Slurm's userclaimfield."""
    audience: str = ""
    """Required audience ("aud") of a token. Empty: any."""
    issuer: str = ""
    """Required issuer ("iss") of a token. Empty: any."""


class ApiSection(ConfigSection):
    """REST API and web UI."""

    enabled: bool = True
    socket: FileName = ""
    """Unix socket of the API. Empty: api.sock in the runtime directory."""
    admins: tuple[str, ...] = ()
    """Users who see and change all users' chains; root always does."""
    listen: str = ""
    """Network address, such as 127.0.0.1:8421; empty: only the socket. An address that other machines can reach
    requires a certificate or a trusted proxy."""
    certificate: FileName = ""
    """PEM file of the TLS certificate, read at startup. Empty: no TLS."""
    certificate_key: FileName = ""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that terminate TLS for this daemon. Mirage trusts the client address that
    they report; without a certificate only they may connect from other machines."""
    url: Annotated[str, Field(pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+/?)?$")] = ""
    """External URL of the web UI, without a path: https://mirage.example.org. Empty: the listen address."""
    policy: FileName = ""
    """File with the permissions of users and Unix groups. Empty: each user controls only their own chains."""
    session: Positive = 12 * 3_600
    """Duration of a browser session; then the user must log in again."""
    rate: Count = 300
    """Sustained requests per second of one caller; 0: no limit. Each 128 KiB of a body count as one more."""
    burst: Positive = 600
    """Maximum number of requests that one caller may make in a burst."""
    frame_ancestors: tuple[Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.:*\[\]-]+$")], ...] = ()
    """Origins of portals that may show the web UI in a frame, such as https://ondemand.example.org."""
    jwt: JwtSection = JwtSection()


class LogSection(ConfigSection):
    """Log on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    """text: key=value; json: one object per line."""


class MetricsSection(ConfigSection):
    """Access to /metrics at the network address. On the socket or with a permitted token all users may read it."""

    anonymous: Literal["nobody", "loopback", "anybody"] = "loopback"
    """Access without a token. A request that a proxy on this machine forwards does not count as loopback."""


class WebhookSection(ConfigSection):
    """Notifications by HTTP POST."""

    url_file: FileName = ""
    """File with the URL, readable only by the daemon. Empty: no webhook."""
    format: Literal["json", "chat"] = "json"
    """json: one field per fact; chat: the field "text" that Slack and Mattermost display."""
    events: Events = _FOR_SITES
    timeout: Positive = 10


class MailSection(ConfigSection):
    """Notifications by mail."""

    server: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]:\d{1,5}|[A-Za-z0-9.-]+:\d{1,5})?$")] = ""
    """SMTP server, such as mail.example.org:587. Empty: no mail."""
    security: Literal["none", "starttls", "tls"] = "none"
    user: str = ""
    password_file: FileName = ""
    """File with the SMTP password, readable only by the daemon."""
    sender: str = "mirage@localhost"
    to: tuple[str, ...] = ()
    """Recipients at the site."""
    events: Events = _FOR_SITES
    """Events mailed to the site."""
    owners: Annotated[str, Field(pattern=r"^(\S*\{user\}\S*)?$")] = ""
    """Mail address of a chain's owner, such as {user}@example.org. Empty: owners get no mail."""
    owner_events: Events = _FOR_OWNERS
    """Events of a chain mailed to its owner."""
    timeout: Positive = 10


class NotificationsSection(ConfigSection):
    """Notifications. Events: link-submitted, gap (an interruption), chain-done, chain-stuck, job-not-adopted,
    week, protected-mode, controller-unreachable."""

    gap: Duration = 600
    """Minimum duration of an interruption that is reported."""
    unreachable: Duration = 600
    """Time without a reply from the cluster after which it is reported."""
    late: AboveZero = 2.0
    """A link counts as stuck if it waits longer than this factor times the P90 of its forecast."""
    webhook: WebhookSection = WebhookSection()
    mail: MailSection = MailSection()


class ChainsSection(ConfigSection):
    """Defaults of new chains; a user can override each."""

    aim: Annotated[str, AfterValidator(valid_aim)] = "cheapest"
    """Objective. cheapest: least expected cost; no-interruption=90%: this share of handovers on time;
    overlap=30m: at most this mean overlap."""
    steering: Steering = Steering.AUTO
    """Early submission. auto: pin links that have whole nodes, unless the owner names a predictor or an
    objective; for other links the predictor decides when to submit. off: the predictor decides for all links."""
    lead: Duration = 600
    """Early submission: release a successor this long before its predecessor ends; with pin, 0 or handover none:
    after that end. auto uses it only with when-ready and on-start, at most a tenth of the time limit."""
    handover: HandoverPolicy = HandoverPolicy.NONE
    """none: one writer, no link starts before its predecessor has ended; overlap: both run until the
    predecessor's time limit; when-ready, on-start: the predecessor is signalled to exit once its successor is
    ready, or runs."""
    max_overlap: Duration = 0
    """Maximum overlap, then the predecessor is signalled to exit; 0: no limit. No effect with handover none."""
    grace: Duration = 60
    """Time between the signal to a predecessor and its end."""
    adopt: Literal["marked", "none"] = "marked"
    """marked: a job of plain sbatch with #MIRAGE lines or a comment "mirage: ..." becomes a chain; none: off."""


class Config(BaseSettings):
    """The whole configuration; only ``mirage.config.loading`` builds it."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="MIRAGE_", env_nested_delimiter="__")

    service: ServiceSection = ServiceSection()
    cluster: ClusterConnectionSection = ClusterConnectionSection()
    acting: ActingSection = ActingSection()
    loop: LoopSection = LoopSection()
    predictors: PredictorsSection = PredictorsSection()
    training: TrainingSection = TrainingSection()
    replays: ReplaysSection = ReplaysSection()
    limits: LimitsSection = LimitsSection()
    store: StoreSection = StoreSection()
    api: ApiSection = ApiSection()
    log: LogSection = LogSection()
    metrics: MetricsSection = MetricsSection()
    notifications: NotificationsSection = NotificationsSection()
    chains: ChainsSection = ChainsSection()
