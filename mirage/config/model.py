"""Every key of the configuration: its type, its bounds, its default and what it is for.

Durations are whole seconds here; a file may also say ``"90s"``, ``"10m"``, ``"30d"``. An empty text means that
nothing is given: what then holds stands at the key.
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
from mirage.domain.notice import NoticeKind

_DAY = 86_400
Events = tuple[NoticeKind, ...]

_FOR_SITES = (NoticeKind.GAP, NoticeKind.STUCK, NoticeKind.PROTECTED, NoticeKind.UNREACHABLE)
_FOR_OWNERS = (NoticeKind.GAP, NoticeKind.DONE, NoticeKind.STUCK, NoticeKind.WEEK)


class Section(BaseModel):
    """A table of the file; a key that it does not have is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_max_length=LONGEST_PATH, allow_inf_nan=False)


class ServiceSection(Section):
    """Where the daemon keeps its things."""

    state: FileName = ""
    """Directory for the store, the lock and the heartbeat; empty: systemd's, or ~/.local/state/mirage, or where
    that is on a network file system /var/tmp/mirage-USER."""
    runtime: FileName = ""
    """Directory for the socket; empty: systemd's, for root /run/mirage, else the state directory."""
    name: str = ""
    """How people call this daemon among several on one database; empty: the machine's name."""


class RestSection(Section):
    """How slurmrestd is reached (backend "rest", acting mode "token")."""

    url: str = ""
    """Such as http://127.0.0.1:6820, or unix:/run/slurmrestd.socket."""
    token_file: FileName = ""
    """A JWT, read again at each use; empty: the socket says who asks."""
    user: str = ""
    """Whose token that is; empty: the daemon's own user."""
    server_user: str = ""
    """The account of slurmrestd, where it listens at a port of this machine with a UID from 1000 on; the server of
    any other such user is sent nothing."""


class SimulatedSection(Section):
    """The cluster that needs no Slurm (backend "simulated")."""

    cluster: FileOrName = "demo"
    """A cluster file, a slurm.conf or a preset."""
    trace: FileOrName = "generated:demo:1"
    """The background load: a trace file, or generated:PRESET:SEED; empty: none."""
    rate: AboveZero = 60.0
    """Simulated seconds a second."""


class ClusterSection(Section):
    """How Slurm is seen."""

    backend: Literal["cli", "rest", "pyslurm", "simulated"] = "cli"
    slurm_conf: FileName = ""
    """The file that Slurm's commands read; empty: their own default."""
    timeout: Positive = 30
    """After so long an unanswered question is given up."""
    clock: FileName = ""
    """The clock.json of a Slurm whose clock runs faster; empty: the machine's clock."""
    rest: RestSection = RestSection()
    simulated: SimulatedSection = SimulatedSection()


class ActingSection(Section):
    """In whose name jobs are submitted."""

    mode: Literal["own", "agent", "release", "sudo", "token"] = "own"
    """own: the daemon's user; agent: a process of each user; release: held jobs are let go; sudo: a helper
    program; token: slurmrestd with each user's JWT."""
    timeout: Positive = 60
    """After so long an act without an answer is given up; the next snapshot tells what became of it."""
    helper: FileName = "/usr/bin/mirage-act"
    """Mode sudo: the program that sudo starts as the user."""
    tokens: FileName = ""
    """Mode token: the directory that holds a JWT for each user, USER.jwt, readable by the daemon only."""


class LoopSection(Section):
    """When and how is decided."""

    interval: Positive = 60
    """Between two looks at the cluster, in Slurm's time."""
    jitter: Annotated[float, Field(ge=0, le=0.5), NUMBER] = 0.1
    """Each interval is longer or shorter by up to this part of it."""
    longest_interval: Positive = 600
    """How far the interval is stretched while Slurm is slow."""
    slow_answer: Positive = 5
    """When a cycle's questions take longer than this, the interval is doubled."""
    settle: Positive = 120
    """After so long, in real time, a link that was sent and that no snapshot shows is sent again."""
    predictor: str = "auto"
    """As "mirage plugins" lists them, such as fixed:6h; a trained one by its model's directory, such as
    xgboost:/path/of/model, or by name alone: the one in use in the state directory's models. auto: the best of
    those at hand. It decides where a successor is not pinned: see chains.steering."""
    shadows: tuple[str, ...] = ()
    """Predictors that are asked at each decision too, and decide nothing; "mirage models shadow" compares."""
    fallback: str = "quantile"
    """Who answers where a predictor fails, takes too long or meets a queue unlike those it was trained on; where
    that one fails too it is reactive."""
    budget: AboveZero = 5.0
    """Seconds a predictor may take; after that the fallback answers."""
    level: Annotated[Ratio | None, Field(examples=[0.5])] = None
    """Which quantile of the start counts; not given: the one at which the expected cost is least."""
    margin: Duration = 0
    """A successor may start so long before its predecessor ends."""
    interruption_price: Price = 1.0
    """What a second without a running link costs."""
    overlap_price: Price = 1.0
    """What a second with two running links costs."""
    early_price: Price = 0.25
    """What a second costs by which a link is cut short because it makes way for one that started early."""


class LookaheadSection(Section):
    """The predictor that plays the coming days on the simulator (predictor "lookahead")."""

    cluster: FileOrName = ""
    """A cluster file, a slurm.conf or a preset; empty: the slurm.conf that the cluster itself has read."""


class PredictorsSection(Section):
    """What predictors are told."""

    lookahead: LookaheadSection = LookaheadSection()


class TrainingSection(Section):
    """Models that the daemon trains on the jobs that it knows, and tests on later weeks."""

    every: Duration = 7 * _DAY
    """0: never. First when accounting has brought two weeks of jobs."""
    predictor: str = "auto"
    """auto: random-forest and xgboost, where their plugins are installed."""
    promote: bool = True
    """Whether one that does better is put in use; false: "mirage models promote" does that."""
    nodes: tuple[Annotated[int, Field(ge=1, le=MOST_NODES), NUMBER], ...] = (1, 8)
    """Sizes of the links that it is to time."""
    limit: Positive = 48 * 3_600
    """Their time limit."""
    partition: str = ""
    """Theirs; empty: the default one."""
    span: Positive = 90 * _DAY
    """How far back jobs are learned from."""
    launcher: Literal["local", "slurm"] = "local"
    """local: a process of least priority; slurm: a job whose node shares the state directory."""


class ReplaysSection(Section):
    """Replays that people ask for over the API."""

    folder: FileName = ""
    """Of the traces and cluster files that may be named; empty: none but generated ones and presets."""
    most: Count = 8
    """May wait or run at once, one after the other; 0: there are no replays."""
    memory_mb: Count = 1_280
    """MiB of data that the process of a replay may have; 0: no such limit. It is ended with "out of memory"."""


class LimitsSection(Section):
    """What Mirage allows itself; 0: no such limit."""

    live_links: Count = 0
    """Links of all chains on the cluster at once."""
    submissions_per_hour: Count = 600
    """Submissions of all users within an hour. Each is one RPC that takes slurmctld's job lock for writing. Half
    of the total is divided evenly among the users with active chains: no other user can take that from them."""
    submissions_per_hour_per_user: Count = 60
    """Submissions of one user within an hour, over all chains of that user."""
    chains_per_user: Count = 100
    """Chains of one user that are not over; ten times as many are kept of one user in all."""
    chains: Count = 2_000
    """Chains of all users that are not over; half of them are divided evenly among the users."""
    stored_mb_per_user: Count = 64
    """MiB of scripts and environments of one user's chains. A chain that is over has none."""
    stored_mb: Count = 512
    """MiB of scripts and environments of all users; half of them are divided evenly among the users."""
    pause_after_refusals: Count = 3
    """Rejections in a row that no retry can fix, such as an unknown partition, after which a chain pauses that
    Slurm had accepted before; one never accepted pauses at the first. Other rejections never pause a chain."""
    protect_after: Count = 5
    """Chains rejected in a row that Slurm had accepted before, after which all submissions are held but for a
    try periodically (docs/observability.md)."""
    refusal_backoff: Duration = 300
    """Wait after a rejected submission; doubles with each one in a row, up to 15 min or this value if greater."""


class RetentionSection(Section):
    """How long things are kept, in Slurm's time."""

    decisions: Positive = 14 * _DAY
    """Entries of the journal that explain a decision; there is one a chain and cycle."""
    journal: Positive = 365 * _DAY
    """All other entries."""
    snapshots: Positive = 3 * _DAY
    waits: Positive = 90 * _DAY
    jobs: Positive = 180 * _DAY
    """Jobs of all users, by submission: what is learned from."""
    outcomes: Positive = 730 * _DAY
    audit: Positive = 730 * _DAY
    chains: Positive = 180 * _DAY
    """Chains that are over."""


class StoreSection(Section):
    """What is kept, and where."""

    url: DatabaseUrl = ""
    """sqlite:////ABSOLUTE/FILE (four slashes) or postgresql://USER@HOST/NAME; empty: mirage.db in the state
    directory."""
    lease: Annotated[int, Field(ge=3, le=3_600), SECONDS] = 45
    """Real seconds after which another daemon on the same database takes over from one that is silent."""
    snapshot_every: Duration = 600
    """Between snapshots that are kept for later evaluation; 0: none are."""
    history: Duration = 60 * _DAY
    """How far back the jobs of all users are asked of the accounting at the first start; 0: not at all."""
    retention: RetentionSection = RetentionSection()


class JwtSection(Section):
    """Slurm's own tokens ("scontrol token"), taken over the network; without a key or keys none is."""

    key: FileName = ""
    """The site's jwt_hs256.key, readable by the daemon; whoever can read it can be anybody."""
    jwks: FileName = ""
    """Public keys (a JWKS file) for tokens signed with RS256."""
    user_claim: str = "sun"
    """Which claim names the user, as Slurm's userclaimfield."""
    audience: str = ""
    """Where given, only tokens made for it count."""
    issuer: str = ""
    """Where given, only tokens made by it count."""


class ApiSection(Section):
    """By which people, programs and browsers speak to the daemon."""

    enabled: bool = True
    socket: FileName = ""
    """Empty: api.sock in the runtime directory."""
    admins: tuple[str, ...] = ()
    """Users who see and change the chains of all; root does anyway."""
    listen: str = ""
    """An address for browsers and programs, such as 127.0.0.1:8421; empty: the socket only. One that others can
    reach needs a certificate, or a proxy that is trusted."""
    certificate: FileName = ""
    """A PEM file: the address speaks TLS; read at the start."""
    certificate_key: FileName = ""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies that speak TLS for this daemon: what they say of the caller's address is
    trusted, and without a certificate only they may come from other machines."""
    url: Annotated[str, Field(pattern=r"^(https?://[A-Za-z0-9.:\[\]-]+/?)?$")] = ""
    """Where browsers find the page, without a path: https://mirage.example.org; empty: the address listened on."""
    policy: FileName = ""
    """A file that says what users and Unix groups may do; empty: each user works with own chains."""
    session: Positive = 12 * 3_600
    """After so long a browser has to log in again."""
    rate: Count = 300
    """Requests a second that one caller may make in the long run; 0: no bound. Each 128 KiB of a body count as one
    request more."""
    burst: Positive = 600
    """Requests that one caller may make at once."""
    frame_ancestors: tuple[Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.:*\[\]-]+$")], ...] = ()
    """Origins of portals that may show the page within theirs, such as https://ondemand.example.org."""
    jwt: JwtSection = JwtSection()


class LogSection(Section):
    """What is said on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"
    """text: key=value; json: one object a line."""


class MetricsSection(Section):
    """Who may read /metrics at the network address; by the socket every user may, with a token all users who may
    read."""

    anonymous: Literal["nobody", "loopback", "anybody"] = "loopback"
    """Without a token. What a proxy on this machine passes on does not count as loopback."""


class WebhookSection(Section):
    """Messages by HTTP POST."""

    url_file: FileName = ""
    """The file with the address, readable by the daemon alone; empty: no messages this way."""
    format: Literal["json", "chat"] = "json"
    """json: one field a fact; chat: the field text that Slack and Mattermost take."""
    events: Events = _FOR_SITES
    timeout: Positive = 10


class MailSection(Section):
    """Messages by mail."""

    server: Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:]+\]:\d{1,5}|[A-Za-z0-9.-]+:\d{1,5})?$")] = ""
    """Such as mail.example.org:587; empty: no messages this way."""
    security: Literal["none", "starttls", "tls"] = "none"
    user: str = ""
    password_file: FileName = ""
    """The file with the user's password, readable by the daemon alone."""
    sender: str = "mirage@localhost"
    to: tuple[str, ...] = ()
    """The site's addresses."""
    events: Events = _FOR_SITES
    """What they are told."""
    owners: Annotated[str, Field(pattern=r"^(\S*\{user\}\S*)?$")] = ""
    """The address of a chain's owner, such as {user}@example.org; empty: owners get no mail."""
    owner_events: Events = _FOR_OWNERS
    """What owners are told of their own chains."""
    timeout: Positive = 10


class NotificationsSection(Section):
    """What people are told without asking. Events: link-submitted, gap, chain-done, chain-stuck, week,
    protected-mode, controller-unreachable."""

    gap: Duration = 600
    """A service without a running link is told of after so long."""
    unreachable: Duration = 600
    """A cluster that does not answer is told of after so long."""
    late: AboveZero = 2.0
    """A link that waits longer than the P90 of its forecast by this factor counts as stuck."""
    webhook: WebhookSection = WebhookSection()
    mail: MailSection = MailSection()


class ChainsSection(Section):
    """What a new chain gets where its owner does not say."""

    aim: Annotated[str, AfterValidator(valid_aim)] = "cheapest"
    """cheapest: the least expected cost; no-interruption=90%: so many handovers in time; overlap=30m: no more
    overlap than that in the mean."""
    steering: Steering = Steering.AUTO
    """auto: links that have whole nodes are pinned, unless the owner names a predictor or an aim; for the others
    the predictor decides when to submit. off: it decides for all."""
    lead: Duration = 600
    """Steering: a successor is let go so long before its predecessor's end. Pin: after that end with 0, and always
    with handover none; auto: only with when-ready and on-start, a tenth of the limit at most."""
    handover: HandoverPolicy = HandoverPolicy.NONE
    """none: one writer, no link starts before the one before it is over; overlap: both run until the predecessor's
    limit; when-ready, on-start: the predecessor is told to exit once its successor is ready, or runs."""
    max_overlap: Duration = 0
    """After this time together the predecessor gets its signal; 0: no bound. No effect with handover none."""
    grace: Duration = 60
    """Between the signal to a predecessor and its end."""


class Config(BaseSettings):
    """The whole configuration; built by ``mirage.config.loading`` only."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, env_prefix="MIRAGE_", env_nested_delimiter="__")

    service: ServiceSection = ServiceSection()
    cluster: ClusterSection = ClusterSection()
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
