"""Observers of the daemon: metrics and notifications."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.api.port import Telemetry
from mirage.control.forecasts import ForecastLedger
from mirage.domain.errors import ConfigError
from mirage.domain.journal import Notice, NoticeKind
from mirage.metrics.gauges import GaugeSources, StateCollector
from mirage.metrics.meters import Meters, expose
from mirage.notifications.channels import OwnerMail, Postbox, SiteMail, Webhook
from mirage.notifications.delivery import DeliveryQueue, Undeliverable
from mirage.notifications.rules import NotificationRules, Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.backends.wrappers import AuditedAction
    from mirage.config.model import MailSection, NotificationsSection
    from mirage.control.guard import Guards
    from mirage.control.status import Status
    from mirage.domain.journal import Entry
    from mirage.notifications.delivery import Channel

_LOG = logging.getLogger(__name__)

_RESULTS = {
    "done": "accepted",
    "SubmissionRejected": "rejected",
    "NotPermitted": "not_permitted",
    "ClusterUnavailable": "unavailable",
}


@dataclass(frozen=True, slots=True)
class Messenger:
    """Sends the notifications that the rules produce."""

    watch: NotificationRules
    couriers: tuple[DeliveryQueue, ...]

    def tell(self, status: Status) -> None:
        """Put on its way what this cycle brought."""
        for notice in self.watch.seen(status):
            for courier in self.couriers:
                courier.put(notice)

    def tell_owner(self, owner: str, text: str) -> None:
        """Tell the owner of a job that it cannot be continued. Any thread."""
        notice = Notice(NoticeKind.NOT_ADOPTED, int(time.time()), text, owner=owner)
        for courier in self.couriers:
            courier.put(notice)

    def test(self, asker: str) -> Mapping[str, str]:
        """Try every channel at the same time; return ``sent`` or the error, by channel. Takes seconds."""
        notice = Notice(NoticeKind.TEST, int(time.time()), f"test message, requested by {asker}", owner=asker)
        return {each.channel.name: _tried(each.channel, notice) for each in self.couriers}

    def close(self) -> None:
        """Stop the delivery of notifications on all channels."""
        for courier in self.couriers:
            courier.close()


@dataclass(slots=True)
class Observability:
    """Receives the journal's entries and each cycle; quick; for the loop's thread unless noted."""

    meters: Meters = field(default_factory=Meters)
    ledger: ForecastLedger = field(default_factory=ForecastLedger)
    messenger: Messenger | None = None

    def know(self, guards: Guards) -> None:
        """These predictors are configured."""
        self.meters.know(guards.names)

    def stand_on(self, sources: GaugeSources) -> None:
        """Include the present state of chains in each later scrape."""
        self.meters.registry.register(StateCollector(sources))

    def watch(self, config: NotificationsSection, channels: tuple[Channel, ...], first: Status) -> None:
        """Start notifications for entries after ``first``."""
        thresholds = Thresholds(config.gap, config.unreachable, config.late)
        self.meters.expect(channel.name for channel in channels)
        couriers = tuple(DeliveryQueue(channel, self.meters.notified) for channel in channels)
        self.messenger = Messenger(NotificationRules(first, thresholds, self.ledger), couriers)

    def not_adopted(self, owner: str, text: str) -> None:
        """Report a job that asks for a chain in vain. Any thread."""
        if self.messenger is not None:
            self.messenger.tell_owner(owner, text)

    def test_messages(self, asker: str) -> Mapping[str, str]:
        """Return the result of a test message by channel. Takes seconds; not for the loop's thread."""
        return self.messenger.test(asker) if self.messenger is not None else {}

    def telemetry(self, scrapers: str) -> Telemetry:
        """The metrics as the API exposes them; ``scrapers``: who may read them."""
        return Telemetry(partial(expose, self.meters.registry), scrapers, self.test_messages)

    def hear(self, entry: Entry) -> None:
        """Pass an entry of the journal to ledger, metrics and notifications."""
        self.ledger.hear(entry)
        self.meters.hear(entry)
        if self.messenger is not None:
            self.messenger.watch.hear(entry)

    def acted(self, deed: AuditedAction) -> None:
        """Count an action for a user, done or failed."""
        if deed.tag:
            self.meters.submitted(_RESULTS.get(deed.result.partition(":")[0], "failed"))

    def seen(self, status: Status) -> None:
        """Process an ended cycle. An error here must not look like one of the loop."""
        try:
            if self.messenger is not None:
                self.messenger.tell(status)
            for foreseen in self.ledger.settle(status.chains):
                self.meters.came_true(foreseen)
        except Exception:
            _LOG.exception(
                "event=internal_error text=%r", "metrics or messages: bug in Mirage; report the traceback"
            )

    def close(self) -> None:
        """Stop the threads that send notifications."""
        if self.messenger is not None:
            self.messenger.close()


def build_channels(config: NotificationsSection) -> Iterator[Channel]:
    """The configured channels. Raises ``ConfigError`` for one that cannot work."""
    hook = config.webhook
    if hook.url_file:
        webhook = Webhook(Path(hook.url_file), hook.events, hook.format == "chat", hook.timeout)
        webhook.check()
        yield webhook
    if config.mail.server:
        yield from _mail(config.mail)


def _mail(config: MailSection) -> Iterator[Channel]:
    host, _, port = config.server.rpartition(":")
    if bool(config.user) != bool(config.password_file):
        raise ConfigError("notifications.mail.user", "set both user and password_file, or neither")
    if config.user and config.security == "none":
        raise ConfigError("notifications.mail.security", "a password requires starttls or tls")
    postbox = Postbox(
        host.strip("[]"),
        int(port),
        config.sender,
        config.security,
        config.user,
        config.password_file,
        config.timeout,
    )
    if config.to:
        yield SiteMail(postbox, config.to, config.events)
    if config.owners:
        yield OwnerMail(postbox, config.owners, config.owner_events)


def _tried(channel: Channel, notice: Notice) -> str:
    if not channel.wants(notice):
        return "no recipient is configured"
    try:
        channel.send(notice)
    except Undeliverable as error:
        return str(error)
    return "sent"
