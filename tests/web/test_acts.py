"""Actions on pages: by keyboard, with confirmation, and with announced results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chains_seen import everything, waiting
from instants import NOW
from seeded import SeededLoop
from server import seeded
from visiting import visit

from mirage.domain.chain import ChainStatus

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def test_a_chain_is_opened_and_paused_by_keyboard_alone(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/")
        _tab_to(seen.page, "llm-pretrain")
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/chains/llm-pretrain-k3q9")
        _tab_to(seen.page, "Pause")
        seen.page.keyboard.press("Enter")
        dialog = seen.page.get_by_role("dialog")
        dialog.wait_for()
        assert "Pause llm-pretrain?" in dialog.inner_text()
        _tab_to(seen.page, "Yes")
        seen.page.keyboard.press("Enter")
        seen.page.locator("#act-resume").wait_for()
        assert seen.page.get_by_role("status").inner_text() == "chain llm-pretrain-k3q9 paused by root"
        assert seen.complaints == []
    assert _status(loop, "llm-pretrain-k3q9") is ChainStatus.PAUSED


def test_an_answer_of_no_changes_nothing(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/chains/chat-service-p2m4")
        seen.page.get_by_role("button", name="Cancel").click()
        seen.page.keyboard.press("Escape")
        seen.page.get_by_role("button", name="Cancel").click()
        seen.page.get_by_role("button", name="Go back").click()
        seen.page.get_by_role("dialog").wait_for(state="hidden")
    assert _status(loop, "chat-service-p2m4") is ChainStatus.ACTIVE


def test_a_cancelled_chain_takes_no_more_commands(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/chains/chat-service-p2m4")
        seen.page.get_by_role("button", name="Cancel").click()
        seen.page.get_by_role("button", name="Yes").click()
        seen.page.locator("h1 .is-cancelled").wait_for()
        assert seen.page.get_by_role("button", name="Cancel").count() == 0
    assert _status(loop, "chat-service-p2m4") is ChainStatus.STOPPED


def test_a_model_is_put_in_use_after_a_question(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/predictors")
        seen.page.get_by_role("button", name="Promote").click()
        assert "Promote xgboost 20261114-d4e5f6?" in seen.page.get_by_role("dialog").inner_text()
        seen.page.get_by_role("button", name="Yes").click()
        seen.page.get_by_role("row", name="20261114-d4e5f6 in use").wait_for()
        assert "xgboost 20261114-d4e5f6 is in use" in seen.page.get_by_role("status").inner_text()
        seen.page.get_by_role("button", name="Roll back").click()
        seen.page.get_by_role("button", name="Yes").click()
        seen.page.locator("#said.failed").wait_for()
        assert "no version was in use before" in seen.page.get_by_role("status").inner_text()


def test_what_happens_shows_without_reloading(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/")
        seen.page.locator("#live-switch:not(.off)").wait_for()
        seen.page.evaluate("window.untouched = true")
        link = seen.page.get_by_role("link", name="llm-pretrain", exact=True)
        link.focus()
        _submit_next(loop)
        seen.page.get_by_text("link 7, pending").wait_for()
        assert seen.page.evaluate("window.untouched"), "the page was not loaded again"
        assert seen.page.evaluate("document.activeElement.id") == "to-llm-pretrain-k3q9", "the focus stays"
        assert "UTC" not in seen.page.locator("main time").first.inner_text(), "times are the reader's, still"
        assert seen.page.locator("#news").inner_text() == "llm-pretrain: up, link 6 runs, link 7 waits"
        assert seen.complaints == []


def test_what_is_opened_stays_open(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/chains/llm-pretrain-k3q9")
        seen.page.locator("#live-switch:not(.off)").wait_for()
        details = seen.page.locator("#as-table")
        details.locator("summary").click()
        _submit_next(loop)
        details.get_by_role("rowheader", name="7", exact=True).wait_for()
        assert details.get_attribute("open") is not None
        assert seen.page.evaluate("document.activeElement.tagName") == "SUMMARY", "the focus stays"


def test_what_is_being_typed_is_not_taken_away(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/queue")
        seen.page.locator("#live-switch:not(.off)").wait_for()
        user = seen.page.locator("#user")
        user.fill("ali")
        before = seen.page.locator("#live").get_attribute("data-seen")
        loop.status = replace(loop.status, time=loop.status.time + 60)
        loop.feed.cycled(loop.status)
        seen.page.wait_for_timeout(3_000)
        assert user.input_value() == "ali"
        assert seen.page.locator("#live").get_attribute("data-seen") == before
        user.blur()
        seen.page.wait_for_function("() => document.getElementById('user').value === ''")


def test_updates_can_be_stopped(browser: Browser, loop: SeededLoop, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/")
        switch = seen.page.locator("#live-switch")
        switch.click()
        assert switch.inner_text() == "Updates stopped"
        with seen.page.expect_event("console", lambda message: message.text == "cycle"):
            seen.page.evaluate(
                "new EventSource('/api/v1/events').addEventListener('cycle', () => console.log('cycle'));"
            )
            seen.page.wait_for_function("performance.now() > 0")
            loop.ended.wait(0.3)
            _submit_next(loop)
        assert seen.page.get_by_text("link 7, pending").count() == 0
        switch.click()
        seen.page.get_by_text("link 7, pending").wait_for()


def test_the_theme_is_kept(browser: Browser, address: str) -> None:
    with visit(browser, address) as seen:
        seen.go("/")
        paper = "getComputedStyle(document.body).backgroundColor"
        light = seen.page.evaluate(paper)
        button = seen.page.locator("#theme-switch")
        button.click()
        button.click()
        assert button.inner_text() == "Theme: dark"
        seen.go("/allocation")
        assert seen.page.locator("#theme-switch").inner_text() == "Theme: dark"
        assert seen.page.evaluate(paper) != light


def test_instants_are_shown_in_the_readers_zone(browser: Browser, address: str) -> None:
    context = browser.new_context(timezone_id="Asia/Tokyo", locale="en-GB")
    page = context.new_page()
    page.goto(address + "/")
    shown = page.locator("time:not(.relative)").first
    assert shown.get_attribute("datetime") == "2026-11-21T14:30:00Z"
    assert shown.inner_text() == "21 Nov 23:30"
    assert page.locator("#zone").inner_text() == "Asia/Tokyo"
    context.close()


def test_a_chain_without_a_loop_says_so(browser: Browser, tmp_path: Path) -> None:
    loop = SeededLoop.of(tmp_path, everything())
    with seeded(loop, service=replace(loop.service(), patience=0.2)) as address, visit(browser, address) as seen:
        seen.go("/chains/chat-service-p2m4")
        loop.ended.set()
        seen.page.get_by_role("button", name="Pause").click()
        seen.page.get_by_role("button", name="Yes").click()
        seen.page.locator("#said.failed").wait_for()
        assert "no answer from the decision loop" in seen.page.locator("#said").inner_text()


def _tab_to(page: object, name: str) -> None:
    """Press Tab until what is called ``name`` has the focus, as far as the page goes."""
    for _ in range(60):
        page.keyboard.press("Tab")  # type: ignore[attr-defined]
        if page.evaluate("document.activeElement.textContent.trim()") == name:  # type: ignore[attr-defined]
            return
    raise AssertionError(f"{name} cannot be reached by Tab")


def _submit_next(loop: SeededLoop) -> None:
    records = loop.status.chains
    first = records[0]
    loop.publish((first.with_link(waiting(first.chain, 7, NOW)), *records[1:]))


def _status(loop: SeededLoop, chain_id: str) -> ChainStatus:
    return next(record.status for record in loop.status.chains if record.chain.chain_id == chain_id)
