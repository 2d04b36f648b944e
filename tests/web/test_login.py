"""People over the network: a token in a form becomes a session, and the page's buttons work with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from server import serving
from visiting import visit

from mirage.api.access.caller import Scope
from mirage.api.app import create_app
from mirage.domain.chain import ChainStatus

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from playwright.sync_api import Browser
    from seeded import SeededLoop


@pytest.fixture
def obeying(loop: SeededLoop) -> Iterator[SeededLoop]:
    """The loop with a thread behind it."""
    thread: threading.Thread = loop.thread()
    thread.start()
    yield loop
    loop.ended.set()
    thread.join()
    loop.store.close()


def test_a_token_opens_the_page_until_one_leaves(browser: Browser, obeying: SeededLoop) -> None:
    service = obeying.service()
    text, _ = service.gate.tokens.create("alice", "for a test", Scope.OPERATE, 3_600)
    with serving(create_app(service)) as address, visit(browser, address) as seen:
        seen.go("/chains/llm-pretrain-k3q9")
        assert seen.page.url.endswith("/login?next=/chains/llm-pretrain-k3q9")
        seen.page.get_by_label("Token").fill("mirage_wrong")
        seen.page.get_by_role("button", name="Log in").click()
        assert "Invalid token" in seen.page.get_by_role("alert").inner_text()
        seen.page.get_by_label("Token").fill(text)
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/chains/llm-pretrain-k3q9")
        assert seen.page.locator(".who").inner_text() == "alice"
        seen.page.locator("#live-switch:not(.off)").wait_for()
        seen.page.get_by_role("button", name="Pause").click()
        seen.page.get_by_role("button", name="Yes").click()
        seen.page.locator("#act-resume").wait_for()
        assert obeying.status.chains[0].status is ChainStatus.PAUSED
        seen.page.get_by_role("button", name="Log out").click()
        seen.page.wait_for_url("**/login")
        seen.go("/")
        assert "/login" in seen.page.url
        obeying.feed.close()


def test_a_page_left_open_leads_to_the_form_once_its_session_ends(browser: Browser, obeying: SeededLoop) -> None:
    """It would show chains of long ago, or nothing, and say that it is live."""
    service = obeying.service()
    text, token = service.gate.tokens.create("alice", "for a test", Scope.OPERATE, 3_600)
    with serving(create_app(service)) as address, visit(browser, address) as seen:
        seen.go("/login")
        seen.page.get_by_label("Token").fill(text)
        seen.page.keyboard.press("Enter")
        seen.page.locator("#live-switch:not(.off)").wait_for()
        left = seen.page.context.new_page()
        left.goto(address + "/queue")
        left.locator("#live-switch:not(.off)").wait_for()
        service.gate.tokens.revoke(token.token_id)
        for _ in range(4):
            obeying.feed.cycled(obeying.status)
            left.wait_for_timeout(1_500)
        left.wait_for_url("**/login?next=/queue")
        seen.page.wait_for_url("**/login?next=/")
        obeying.feed.close()


def test_windows_that_nobody_sees_keep_no_connection(browser: Browser, obeying: SeededLoop) -> None:
    """A browser has six for one address: with six windows open the seventh would never load."""
    service = obeying.service()
    text, _ = service.gate.tokens.create("alice", "for a test", Scope.OPERATE, 3_600)
    feed = service.feed
    assert feed is not None
    with serving(create_app(service)) as address, visit(browser, address) as seen:
        seen.go("/login")
        seen.page.get_by_label("Token").fill(text)
        seen.page.keyboard.press("Enter")
        seen.page.locator("#live-switch:not(.off)").wait_for()
        assert len(feed._present()) == 1
        hide = "Object.defineProperty(document, 'hidden', {{get: () => {}, configurable: true}});"
        hide += "document.dispatchEvent(new Event('visibilitychange'))"
        seen.page.evaluate(hide.format("true"))
        for _ in range(20):
            feed.cycled(obeying.status)  # a server notices a closed connection when it sends
            seen.page.wait_for_timeout(100)
        assert feed._present() == ()
        seen.page.evaluate(hide.format("false"))
        seen.page.wait_for_function("() => document.getElementById('live-switch').textContent === 'Live'")
        seen.page.wait_for_timeout(500)
        assert len(feed._present()) == 1
        obeying.feed.close()
