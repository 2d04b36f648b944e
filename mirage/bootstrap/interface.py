"""The socket by which people and agents speak to the daemon: its parts, built from the configuration.

Authentication and access policy, and the replays that people ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.api.access.authentication import CHANGES_A_SECOND, CHANGES_AT_ONCE, Authenticator
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.rates import RateLimiter, RightOfWay
from mirage.api.access.sessions import SessionCookies, session_key
from mirage.api.access.tokens import Claims, SlurmTokens, TokenBook
from mirage.api.access.watchedfile import ReloadedFile
from mirage.api.feed import Feed
from mirage.api.listening import Listening
from mirage.api.port import ApiService, EffectiveSetting, Inquiries, Telemetry
from mirage.api.server import ApiServer
from mirage.bootstrap.cluster import SlurmVersion, own_user
from mirage.bootstrap.models import AccuracyMeasurements, ModelDesk
from mirage.bootstrap.policies import quotas_of
from mirage.bootstrap.predictors import MODELS, check_chosen, shelved
from mirage.config.loading import masked, settings
from mirage.domain.errors import ConfigError
from mirage.domain.objective import Weights
from mirage.ownprocess import own_python
from mirage.predictors.members import COMBINED, check_name, members_of
from mirage.provisioner.limits import check_count
from mirage.provisioner.objectives import parse_objective
from mirage.provisioner.tally import Tally
from mirage.replay.runs import ReplayRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.api.access.holders import Holders
    from mirage.bootstrap.cluster import ClusterConnection
    from mirage.bootstrap.readiness import ReadinessCheck
    from mirage.bootstrap.service import DaemonService
    from mirage.config.model import ApiSection, ChainsSection, Config
    from mirage.control.guard import Asker, PredictorGuard
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.journal import Entry
    from mirage.replay.runs import ReplaySpec
    from mirage.store.access import TokenStore
    from mirage.store.opening import Store


def build_replays(service: DaemonService) -> ReplayRuns:
    """Replays of a daemon, kept in its state directory."""
    config = service.config
    offered = Path(config.replays.folder) if config.replays.folder else None

    def command(wish: ReplaySpec, folder: Path) -> Sequence[str]:
        return replay_command(wish, wish.cluster or _own_cluster(service, folder), _models(service))

    folder = Path(config.service.state) / "replays"
    return ReplayRuns(folder, offered, command, service.clock.now, config.replays.most, config.replays.memory_mb)


def replay_command(wish: ReplaySpec, cluster: str, models: Path) -> list[str]:
    """Return the ``mirage replay`` command of a request; no value in it can be taken for an option."""
    options = {
        "--cluster": cluster,
        "--predictor": ",".join(_located(name, models) for name in wish.predictors),
        "--nodes": str(wish.nodes),
        "--limit": f"{wish.limit}s",
        "--start": wish.start,
        "--end": wish.end,
        "--every": f"{wish.every}s",
        "--tick": f"{wish.tick}s",
        "--links": str(wish.links),
        "--partition": wish.partition,
        "--workers": "1",
    }
    words = [f"{name}={value}" for name, value in options.items() if value]
    return own_python("-m", "mirage", "replay", wish.trace, *words)


def _located(text: str, models: Path) -> str:
    """The predictor with the directories of its models. Raises ``PluginNotFound`` and ``ConfigError``."""
    check_chosen(text, models)
    name, _, members = text.partition(":")
    if name not in COMBINED:
        return shelved(text, models)
    return f"{name}:{'+'.join(shelved(member, models) for member in members_of(name, members))}"


def _own_cluster(service: DaemonService, folder: Path) -> str:
    named = service.config.predictors.lookahead.cluster
    if named:
        return named
    if service.lore.copied is None:
        raise ConfigError("cluster", "the backend cannot describe the cluster; choose a preset or a file")
    return service.lore.copied(folder)


def _models(service: DaemonService) -> Path:
    return Path(service.config.service.state) / MODELS


LONGEST_BUILD = 30.0
"""Seconds that a caller waits for a predictor to be built."""


def named_guard(service: DaemonService, name: str, asker: Asker) -> PredictorGuard | None:
    """Return the guard of a named predictor; ``None``: it predicts in any case. Not for the loop's thread.

    Raises ``PluginNotFound`` and ``ConfigError``.
    """
    check_name(name)
    guards = service.guards
    guard = guards.prepare(name, LONGEST_BUILD, asker)
    if guard in (guards.of(""), *guards.shadows):
        return None
    if service.lore.jobs is None:
        service.jobs.jobs(guard.predictor.wants.history)  # read now, not by the loop
    return guard


SESSION_KEY = "session.key"
"""File of the state directory."""


def build_gate(
    config: Config, tokens: TokenStore, in_cycle: Callable[[], bool] = bool, holders: Holders | None = None
) -> Authenticator:
    """Build what authenticates callers and decides their rights. Raises ``ConfigError``.

    ``in_cycle``: whether the loop is in a cycle, which busy callers wait for.
    """
    section = config.api
    policy = ReloadedFile(Path(section.policy), "api.policy", AccessPolicy.read) if section.policy else None
    built_in, slurm = AccessPolicy(), slurm_tokens(section)
    key = session_key(Path(config.service.state, SESSION_KEY))
    # A daemon that submits only as its account belongs to that user, who may do everything with it.
    own = {own_user()} if config.acting.mode == "own" else set()
    return Authenticator(
        admins=frozenset(section.admins) | own,
        policy=lambda: policy.value if policy else built_in,
        tokens=TokenBook(tokens),
        holders=holders,
        slurm=slurm,
        sessions=SessionCookies(key, section.session),
        rates=RateLimiter(section.rate, section.burst),
        changes=RateLimiter(CHANGES_A_SECOND, CHANGES_AT_ONCE) if section.rate else RateLimiter(0, 1),
        way=RightOfWay(in_cycle),
        url=section.url,
        files=(*((policy,) if policy else ()), *(slurm.files if slurm else ())),
    )


def slurm_tokens(section: ApiSection) -> SlurmTokens | None:
    """Reads Slurm's tokens; ``None`` where there is nothing to check them by. Raises ``ConfigError``."""
    tokens = section.jwt
    if not tokens.key and not tokens.jwks:
        return None
    return SlurmTokens(
        Path(tokens.key) if tokens.key else None,
        Path(tokens.jwks) if tokens.jwks else None,
        Claims(tokens.user_claim, tokens.audience, tokens.issuer),
    )


def listening(section: ApiSection) -> Listening | None:
    """The network address; ``None``: the socket only. Raises ``ConfigError``."""
    if not section.listen:
        return None
    return Listening.of(section.listen, section.certificate, section.certificate_key, section.trusted_proxies)


def check_access(section: ApiSection) -> None:
    """Raises ``ConfigError`` for what would keep a daemon from starting; makes nothing."""
    if (address := listening(section)) is not None:
        address.check()
    slurm_tokens(section)
    if section.policy:
        ReloadedFile(Path(section.policy), "api.policy", AccessPolicy.read)


_CHECK = 3.0
"""Seconds that the answer to a new chain waits for a check of its files."""


@dataclass(frozen=True, slots=True)
class Views:
    """Data of the API besides chains and their journal."""

    feed: Feed
    readiness: ReadinessCheck
    telemetry: Telemetry


def build_interface(service: DaemonService, world: ClusterConnection, views: Views) -> ApiServer:
    """The server, not started yet. Raises ``ConfigError``."""
    config, store = service.config, service.store

    def entries(chain: ChainId, limit: int) -> Sequence[Entry]:
        return [line.entry for line in store.journal.read(chain, limit=limit)]

    measurements = AccuracyMeasurements(store, service.clock, lambda: _weights(service.config))
    shown = ApiService(
        status=lambda: views.readiness.shown(leads=bool(service.tenure.term)),
        ask=service.commands.put,
        entries=entries,
        desk=world.desk,
        releases_links=config.acting.mode == "release",
        check_request=world.check_request,
        identify=world.identify,
        check_files=lambda files: world.files.ask(files, _CHECK),
        chain_defaults=chain_defaults(config.chains),
        journal=store.journal,
        feed=views.feed,
        gate=build_gate(config, store.tokens, lambda: service.in_cycle, service.holders),
        check_room=_Room(service),
        url=lambda: config.api.url.rstrip("/"),
        frame_ancestors=config.api.frame_ancestors,
        audit=store.audit,
        answers=store.answers,
        now=views.readiness.now,
        impediment=service.tenure.impediment,
        readiness=views.readiness,
        telemetry=views.telemetry,
        inquiries=Inquiries(
            service.questions.ask, partial(named_guard, service), measurements.errors, measurements.comparison
        ),
        cycle_seconds=lambda: service.cycle_seconds,
        about_cluster=SlurmVersion(config),
        hides_jobs=world.lore.hides_jobs,
        models=ModelDesk(service, measurements),
        configuration=lambda: _configuration(service),
        replays=service.replays,
    )
    return ApiServer(shown, Path(config.api.socket), listening(config.api))


def _weights(config: Config) -> Weights:
    return Weights(config.loop.interruption_price, config.loop.overlap_price)


def _configuration(service: DaemonService) -> list[EffectiveSetting]:
    """The configuration in use; secrets stand in separate files, and passwords within addresses are hidden."""
    return [
        EffectiveSetting(".".join(key), masked(value), service.origin(key))
        for key, value in settings(service.config)
    ]


def build_feed(store: Store) -> Feed:
    """The stream of what happens: each line of the journal once it is stored."""
    feed = Feed(_ChainOwners(store).of)
    store.journal.listen(feed.stored)
    return feed


class _Room:
    """Whether an owner may have a further chain; counted once per cycle, by the server's thread."""

    def __init__(self, service: DaemonService) -> None:
        self._service = service
        self._chains: Sequence[ChainRecord] = ()
        self._tally = Tally.of((), 0)

    def __call__(self, owner: str) -> None:
        """Check the number of chains of ``owner``. Raises ``QuotaExceeded`` if one more is too many."""
        status = self._service.loop.status
        if status.chains is not self._chains:
            self._chains, self._tally = status.chains, Tally.of(status.chains, status.time, self._tally)
        check_count(self._tally, owner, quotas_of(self._service.config))


class _ChainOwners:
    """Owner of each chain, which never changes: all are read again only for a new one. Any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[ChainId, str] = {}

    def of(self, chain: ChainId) -> str:
        if chain not in self._known:
            self._known = {record.chain.chain_id: record.chain.owner for record in self._store.chains.load()}
        return self._known.get(chain, "")


def chain_defaults(section: ChainsSection) -> dict[str, Any]:
    """Settings of a chain whose owner gives none, in the form of a chain's document."""
    signal = {"name": "TERM", "lead": section.grace}
    handover = {"policy": str(section.handover), "signal": signal, "max_overlap": section.max_overlap}
    aim = parse_objective(section.aim)
    return {
        "aim": {"kind": str(aim.kind), "value": aim.value},
        "steering": str(section.steering),
        "lead": section.lead,
        "handover": handover,
    }
