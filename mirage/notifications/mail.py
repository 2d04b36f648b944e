"""Notifications by mail, to the site's addresses and to the owners of chains."""

from __future__ import annotations

import re
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING, Literal

from mirage.client.deadline import Deadline, TimedSocket
from mirage.domain.notice import NoticeKind
from mirage.notifications.channel import Undeliverable
from mirage.notifications.wording import body, heading
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.domain.notice import Notice

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LARGEST_ANSWERS = 1 << 20
"""Maximum number of bytes of all replies in a session."""
Security = Literal["none", "starttls", "tls"]


class _Encryption:
    """The part of a TLS context that ``smtplib`` uses."""

    def wrap_socket(self, plain: TimedSocket, *, server_hostname: str) -> TimedSocket:
        return plain.encrypted(ssl.create_default_context(), server_hostname)


class _Session(smtplib.SMTP):
    """A session with a timeout for all its commands together."""

    def __init__(self, host: str, port: int, timeout: float, *, tls: bool) -> None:
        self._deadline, self._tls = Deadline(timeout), tls
        super().__init__(host, port, timeout=timeout)

    def _get_socket(self, host: str, port: int, timeout: float) -> TimedSocket:
        del timeout
        opened = TimedSocket.to_host(host, port, self._deadline)
        opened.limit(_LARGEST_ANSWERS)
        return _Encryption().wrap_socket(opened, server_hostname=host) if self._tls else opened


@dataclass(frozen=True, slots=True)
class Postbox:
    """The SMTP server."""

    host: str
    port: int
    sender: str
    security: Security = "none"
    user: str = ""
    password_file: str = ""
    timeout: float = 10.0
    """Timeout of a whole session, in seconds."""

    def post(self, message: EmailMessage, recipients: Collection[str]) -> None:
        """Send one message. Raises ``Undeliverable``."""
        try:
            with self._session() as session:
                session.send_message(message, self.sender, list(recipients))
        except smtplib.SMTPRecipientsRefused as error:
            passing = all(code < 500 for code, _ in error.recipients.values())
            raise Undeliverable(f"{self.host}: all recipients rejected", passing=passing) from None
        except smtplib.SMTPResponseException as error:
            text = f"{self.host} replies {error.smtp_code}"
            raise Undeliverable(text, passing=error.smtp_code < 500) from None
        except (OSError, smtplib.SMTPException) as error:
            raise Undeliverable(f"{self.host}: {type(error).__name__}", passing=True) from None

    def _session(self) -> smtplib.SMTP:
        session = _Session(self.host, self.port, self.timeout, tls=self.security == "tls")
        try:
            if self.security == "starttls":
                session.starttls(context=_Encryption())  # type: ignore[call-overload]
            if self.user:
                session.login(self.user, read_regular(self.password_file).decode().strip())
        except BaseException:
            session.close()
            raise
        return session


@dataclass(frozen=True, slots=True)
class SiteMail:
    """A ``Channel`` to addresses of the site."""

    postbox: Postbox
    to: tuple[str, ...]
    events: Collection[NoticeKind]

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return "mail"

    def wants(self, notice: Notice) -> bool:
        """See the port."""
        return notice.kind in self.events or notice.kind is NoticeKind.TEST

    def send(self, notice: Notice) -> None:
        """See the port."""
        self.postbox.post(_message(notice, self.postbox.sender, self.to), self.to)


@dataclass(frozen=True, slots=True)
class OwnerMail:
    """A ``Channel`` to the owner of a message's chain."""

    postbox: Postbox
    template: str
    """Such as ``{user}@example.org``."""
    events: Collection[NoticeKind]

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return "owner-mail"

    def wants(self, notice: Notice) -> bool:
        """See the port. False for users whose name is not valid in a mail address."""
        asked = notice.kind in self.events or notice.kind is NoticeKind.TEST
        return asked and _USER.fullmatch(notice.owner) is not None

    def send(self, notice: Notice) -> None:
        """See the port."""
        to = (self.template.replace("{user}", notice.owner),)
        self.postbox.post(_message(notice, self.postbox.sender, to), to)


def _message(notice: Notice, sender: str, to: tuple[str, ...]) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"] = sender, ", ".join(to)
    message["Subject"] = f"[mirage] {heading(notice)}"
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2] or "localhost")
    message["Auto-Submitted"] = "auto-generated"
    message["X-Mirage-Event"] = str(notice.kind)
    message.set_content(body(notice))
    return message
