"""Notifications as HTTP POST to a configured URL, as JSON or in the format of Slack and Mattermost."""

from __future__ import annotations

import json
import re
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from mirage import __version__
from mirage.client.boundedconnection import BoundedConnection, BoundedTlsConnection
from mirage.domain.errors import ConfigError
from mirage.domain.instants import spell_instant
from mirage.domain.notice import NoticeKind
from mirage.domain.texts import storable
from mirage.notifications.channel import Undeliverable
from mirage.notifications.wording import heading
from mirage.wholefile import read_regular

if TYPE_CHECKING:
    from collections.abc import Collection
    from http.client import HTTPResponse
    from pathlib import Path

    from mirage.domain.notice import Notice

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


class _Bounded(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(BoundedConnection, req)  # type: ignore[arg-type]


class _BoundedTls(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(BoundedTlsConnection, req)  # type: ignore[arg-type]


_OPENER = urllib.request.build_opener(_NoRedirects, _Bounded, _BoundedTls)


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
        "time": spell_instant(notice.time),
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
