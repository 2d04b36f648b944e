"""A visit with a browser that notes what goes wrong."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

WIDE = (1280, 800)
PHONE = (360, 740)


@dataclass
class Visit:
    """A page, what it complained of and where it asked."""

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, path: str) -> int:
        """Open a page; the status of the answer."""
        answer = self.page.goto(self.address + path)
        assert answer is not None
        return answer.status

    def console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def asked(self, request: Request) -> None:
        self.requests.append(request.url)

    @property
    def strangers(self) -> list[str]:
        """Requests to other servers than the daemon."""
        return [url for url in self.requests if not url.startswith(self.address + "/")]


@contextlib.contextmanager
def visit(browser: Browser, address: str, size: tuple[int, int] = WIDE, scheme: str = "light") -> Iterator[Visit]:
    """A browser's window that has never been here."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
        timezone_id="UTC",
        locale="en-GB",
    )
    found = Visit(context.new_page(), address)
    found.page.on("console", found.console)
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", found.asked)
    try:
        yield found
    finally:
        context.close()
