"""The socket by which people and agents speak to the daemon."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.api.feed import Feed
from mirage.api.port import ApiService, Inquiries, Setting, Telemetry
from mirage.api.server import ApiServer
from mirage.bootstrap.access import build_gate, listening
from mirage.bootstrap.inquiries import named_guard
from mirage.bootstrap.measurements import Measurements
from mirage.bootstrap.models import ModelDesk
from mirage.bootstrap.policies import quotas_of
from mirage.bootstrap.release import Release
from mirage.config.display import masked, settings
from mirage.domain.objective import Weights
from mirage.provisioner.aims import parse_aim
from mirage.provisioner.quotas import check_count
from mirage.provisioner.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.bootstrap.readiness import Readiness
    from mirage.bootstrap.service import Service
    from mirage.bootstrap.world import World
    from mirage.config.model import ChainsSection, Config
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.journal import Entry
    from mirage.store.opening import Store


_CHECK = 3.0
"""Seconds that the answer to a new chain waits for a check of its files."""


@dataclass(frozen=True, slots=True)
class Views:
    """Data of the API besides chains and their journal."""

    feed: Feed
    readiness: Readiness
    telemetry: Telemetry


def build_interface(service: Service, world: World, views: Views) -> ApiServer:
    """The server, not started yet. Raises ``ConfigError``."""
    config, store = service.config, service.store

    def entries(chain: ChainId, limit: int) -> Sequence[Entry]:
        return [line.entry for line in store.journal.read(chain, limit=limit)]

    measurements = Measurements(store, service.clock, lambda: _weights(service.config))
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
        about_cluster=Release(config),
        hides_jobs=world.lore.hides_jobs,
        models=ModelDesk(service, measurements),
        configuration=lambda: _configuration(service),
        replays=service.replays,
    )
    return ApiServer(shown, Path(config.api.socket), listening(config.api))


def _weights(config: Config) -> Weights:
    return Weights(config.loop.interruption_price, config.loop.overlap_price)


def _configuration(service: Service) -> list[Setting]:
    """The configuration in use; secrets stand in separate files, and passwords within addresses are hidden."""
    return [Setting(".".join(key), masked(value), service.origin(key)) for key, value in settings(service.config)]


def build_feed(store: Store) -> Feed:
    """The stream of what happens: each line of the journal once it is stored."""
    feed = Feed(_Owners(store).of)
    store.journal.listen(feed.stored)
    return feed


class _Room:
    """Whether an owner may have a further chain; counted once per cycle, by the server's thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._chains: Sequence[ChainRecord] = ()
        self._tally = Tally.of((), 0)

    def __call__(self, owner: str) -> None:
        """Check the number of chains of ``owner``. Raises ``QuotaExceeded`` if one more is too many."""
        status = self._service.loop.status
        if status.chains is not self._chains:
            self._chains, self._tally = status.chains, Tally.of(status.chains, status.time, self._tally)
        check_count(self._tally, owner, quotas_of(self._service.config))


class _Owners:
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
    aim = parse_aim(section.aim)
    return {
        "aim": {"kind": str(aim.kind), "value": aim.value},
        "steering": str(section.steering),
        "lead": section.lead,
        "handover": handover,
    }
