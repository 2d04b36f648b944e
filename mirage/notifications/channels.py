"""Channels: mail by SMTP, and HTTP POST of JSON or in the format of Slack and Mattermost."""

from __future__ import annotations

import json
import re
import smtplib
import ssl
import urllib.request
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http.client import HTTPException
from typing import TYPE_CHECKING, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from mirage import __version__
from mirage.atomic_file import read_regular
from mirage.client.deadline import BoundedConnection, BoundedTlsConnection, Deadline, TimedSocket
from mirage.domain.bounds import format_instant
from mirage.domain.errors import ConfigError
from mirage.domain.journal import NoticeKind
from mirage.domain.texts import storable
from mirage.notifications.delivery import Undeliverable, body, heading

if TYPE_CHECKING:
    from collections.abc import Collection
    from http.client import HTTPResponse
    from pathlib import Path

    from mirage.domain.journal import Notice

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


_BUSY = (408, 425, 429)
_NOTHING = "\u200b"
"""Zero-width character that breaks links."""
_LINKED = re.compile(
    r"(?<=[A-Za-z]):(?=\S)"  # http://..., mailto:...
    r"|\](?=[(\[])"  # [words](address), [words][1]
    r"|(?<=\w)\.(?=(?:[^\W\d_]{2,}|xn--[\w-]+)(?![\w-]))"  # example.com
    r"|\b[Ww]{3}(?=\.)"
    r"|[#~](?=\w)"  # #topic, ~channel
)
"""Positions at which the character prevents a chat from creating a link."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error: messages go only to the configured URL."""

    def redirect_request(self, *args: object, **named: object) -> None:
        """Never."""
        del args, named


class _BoundedHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(BoundedConnection, req)  # type: ignore[arg-type]


class _BoundedTls(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(BoundedTlsConnection, req)  # type: ignore[arg-type]


_OPENER = urllib.request.build_opener(_NoRedirects, _BoundedHandler, _BoundedTls)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A ``Channel`` by HTTP POST."""

    url_file: Path
    """Contains the URL. The URL is a secret, because it permits posting, so it is not in the configuration."""
    events: Collection[NoticeKind]
    chat: bool = False
    """Send only the field ``text``, for chat services, instead of one field per fact."""
    timeout: float = 10.0
    """Timeout of a whole exchange, in seconds."""

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return "webhook"

    def check(self) -> None:
        """Raises ``ConfigError`` if the file contains no valid URL."""
        try:
            self._url()
        except Undeliverable as error:
            raise ConfigError("notifications.webhook.url_file", str(error)) from error

    def wants(self, notice: Notice) -> bool:
        """See the port."""
        return notice.kind in self.events or notice.kind is NoticeKind.TEST

    def send(self, notice: Notice) -> None:
        """See the port."""
        document = {"text": _chat(notice)} if self.chat else _facts(notice)
        headers = {"Content-Type": "application/json", "User-Agent": f"mirage/{__version__}"}
        try:
            body = json.dumps(document).encode()
            request = urllib.request.Request(self._url(), body, headers, method="POST")  # noqa: S310 - see _url
            with _OPENER.open(request, timeout=self.timeout):
                pass
        except HTTPError as error:
            error.close()
            passing = error.code >= 500 or error.code in _BUSY
            raise Undeliverable(f"server replied with status {error.code}", passing=passing) from None
        except URLError as error:
            raise Undeliverable(f"cannot reach the server: {error.reason}", passing=True) from None
        except (OSError, HTTPException, ValueError) as error:
            # The texts of these errors may contain the URL.
            raise Undeliverable(f"cannot reach the server: {type(error).__name__}", passing=True) from None

    def _url(self) -> str:
        try:
            url = read_regular(self.url_file).decode().strip()
        except OSError as error:
            raise Undeliverable(f"{self.url_file} cannot be read: {error.strerror}", passing=True) from None
        except UnicodeDecodeError:
            raise Undeliverable(f"{self.url_file} cannot be read: it is not UTF-8", passing=True) from None
        if not _is_web_address(url):
            raise Undeliverable(f"{self.url_file} contains no http or https URL", passing=False)
        return url


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def _facts(notice: Notice) -> dict[str, object]:
    return {
        "event": str(notice.kind),
        "time": format_instant(notice.time),
        "over": notice.over,
        "text": notice.text,
        "chain": notice.chain or None,
        "name": notice.name or None,
        "owner": notice.owner or None,
        "link": notice.link or None,
    }


def _chat(notice: Notice) -> str:
    """Escape names, which users choose: none may notify a whole channel or become a link."""
    text = f"{heading(notice)}: {storable(notice.text)}"
    for char, instead in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", f"@{_NOTHING}")):
        text = text.replace(char, instead)
    return _LINKED.sub(lambda found: found[0] + _NOTHING, text)
