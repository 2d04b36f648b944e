"""Every page in a real browser: no errors, no foreign requests, fits a phone, accessible."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chains_seen import HOSTILE, everything, hostile
from seeded import SeededLoop
from server import seeded
from visiting import PHONE, WIDE, visit

from mirage.api.access.protocol import Peer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = {
    "/": "Overview",
    "/over": "Finished chains",
    "/chains/llm-pretrain-k3q9": "llm-pretrain",
    "/chains/chat-service-p2m4": "chat-service",
    "/chains/typo-run-c0de": "typo-run",
    "/chains/lr-sweep-q8d3": "lr-sweep",
    "/allocation": "Allocation",
    "/queue": "Queue",
    "/predict": "Predicted start",
    "/predict?limit=24h&nodes=4&partition=gpu": "Predicted start",
    "/predictors": "Predictors",
    "/replays": "Replays",
    "/replays/a1b2c3d4e5f6": "gpu-2026-10.parquet",
    "/replays/0123456789ab": "gpu-2026-10.parquet",
    "/audit": "Audit",
    "/configuration": "Configuration",
    "/login": "Log in",
}
AXE = (Path(__file__).parent / "assets" / "axe.min.js").read_text()
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of axe-core that a dark scheme can break, and the width of a screen cannot."""
MOST_BYTES = 300_000


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_on_every_screen_and_for_everybody(browser: Browser, standing: str, path: str) -> None:
    """No errors, no foreign requests, no serious finding of axe-core, no sideways scrolling on a phone."""
    with visit(browser, standing) as seen:
        assert seen.go(path) == 200
        assert seen.page.locator("h1").all_inner_texts()[0].startswith(PAGES[path])
        assert seen.page.locator("h1").count() == 1
        _open_all(seen.page)
        seen.page.evaluate(AXE + "; null")
        assert _findings(seen.page, {}) == []
        seen.page.emulate_media(color_scheme="dark")
        assert _findings(seen.page, {"runOnly": COLOURS}) == []
        for width in (1_024, 910, 768, PHONE[0]):
            seen.page.set_viewport_size({"width": width, "height": PHONE[1]})
            assert seen.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
            assert _squeezed(seen.page) == [], width
        assert _findings(seen.page, {"rules": {rule: {"enabled": False} for rule in COLOURS}}) == []
        assert seen.complaints == []
        assert seen.strangers == []


def test_the_first_page_is_light_and_needs_one_round(browser: Browser, standing: str) -> None:
    with visit(browser, standing, WIDE) as seen:
        sizes: list[int] = []
        seen.page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
        seen.go("/")
        seen.page.wait_for_load_state("load")
        assert sum(sizes) < MOST_BYTES
        named = seen.page.evaluate("[...document.querySelectorAll('[src], link[href]')].map(e => e.src || e.href)")
        needed = seen.page.evaluate(
            "[...document.querySelectorAll('[src], link[href]:not([rel=icon])')].map(e => e.src || e.href)"
        )
        files = [url for url in seen.requests if "/static/" in url]
        assert len(files) == len(set(files))
        assert set(needed) <= set(files) <= set(named), "whatever is loaded is named by the page itself"


def test_without_scripts_the_page_still_tells(browser: Browser, standing: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(standing + "/chains/llm-pretrain-k3q9")
    assert "interruption 42 min" in page.locator("main").inner_text()
    assert "21 Nov 08:24 UTC" in page.locator("main").inner_text()
    context.close()


@pytest.mark.parametrize("path", ["/", "/chains/evil-666", "/allocation", "/queue", "/predictors"])
def test_whatever_people_name_shows_verbatim(browser: Browser, tmp_path: Path, path: str) -> None:
    loop = SeededLoop.of(tmp_path, (*everything(), hostile()))
    with seeded(loop) as address, visit(browser, address) as seen:
        dialogs: list[str] = []
        seen.page.add_init_script("window.alert = text => console.error('alert', text);")
        seen.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
        assert seen.go(path) == 200
        _open_all(seen.page)
        assert HOSTILE in seen.page.locator("main").evaluate("each => each.textContent")
        assert seen.page.locator("main img, main script").count() == 0
        assert dialogs == []
        assert seen.complaints == []


def test_what_is_not_there_is_said_in_a_page(browser: Browser, standing: str) -> None:
    with visit(browser, standing) as seen:
        assert seen.go("/chains/nix") == 404
        assert "there is no chain nix" in seen.page.locator("main").inner_text()
        for path in ("/nix", "/tokens", "/chains/nix/nor/this"):
            assert seen.go(path) == 404
            assert seen.page.get_by_role("link", name="Go to overview").count() == 1


def test_a_job_is_foreseen_with_the_past_error_beside(browser: Browser, standing: str) -> None:
    with visit(browser, standing) as seen:
        seen.go("/predict")
        seen.page.get_by_label("Time limit").fill("24h")
        seen.page.get_by_label("Nodes", exact=True).fill("4")
        seen.page.get_by_label("Partition").select_option("gpu")
        seen.page.get_by_role("button", name="Predict").click()
        row = seen.page.get_by_role("row", name="lookahead")
        assert "3 h 24 min" in row.inner_text()
        assert "79% of 34" in row.inner_text()
        assert "predicts no start" in seen.page.get_by_role("row", name="dqn").inner_text()
        assert seen.complaints == []


def test_predictors_stand_side_by_side_with_their_calibration(browser: Browser, standing: str) -> None:
    """A picture with its words, and a table that has every figure of it."""
    with visit(browser, standing) as seen:
        seen.go("/predictors")
        curves = seen.page.locator("figure.curve")
        assert curves.locator("figcaption b").all_inner_texts() == ["lookahead", "xgboost"]
        assert curves.locator("figcaption small").all_inner_texts() == ["34 forecasts, gpu"] * 2
        assert "P90: 91% of 34" in (curves.nth(0).get_by_role("img").get_attribute("aria-label") or "")
        assert [curves.nth(each).locator("circle").count() for each in (0, 1)] == [5, 3]
        one, other = (curves.nth(each).bounding_box() for each in (0, 1))
        assert one
        assert other
        assert one["y"] == other["y"]
        assert "dqn, quantile" in seen.page.get_by_text("No completed forecasts").inner_text()
        seen.page.get_by_text("Show as table").click()
        row = seen.page.locator("#calibration-figures").get_by_role("row", name="xgboost")
        assert re.findall(r"gpu|\d+%|\d+", row.inner_text()) == ["gpu", "24%", "56%", "76%", "34"]


def test_a_mistake_in_the_form_is_said_beside_it(browser: Browser, standing: str) -> None:
    with visit(browser, standing) as seen:
        assert seen.go("/predict?limit=soon&nodes=4") == 422
        assert seen.page.get_by_role("alert").inner_text().startswith("limit: 'soon'")
        assert seen.page.get_by_label("Nodes", exact=True).input_value() == "4"


def test_the_queue_is_told_by_partition_and_state(browser: Browser, standing: str) -> None:
    with visit(browser, standing) as seen:
        seen.go("/queue?partition=gpu&state=running")
        assert seen.page.locator("tbody tr").count() == 12
        assert set(seen.page.locator("td[data-label=Partition]").all_inner_texts()) == {"gpu"}
        assert set(seen.page.locator("td[data-label=State]").all_inner_texts()) == {"running"}


def test_names_in_the_queue_are_ones_own(browser: Browser, loop: SeededLoop) -> None:
    with seeded(loop, Peer(4_321, "bob")) as address, visit(browser, address) as seen:
        seen.go("/queue")
        told = {
            row.locator("td").nth(0).inner_text() == "\N{EN DASH}": row.locator("td").nth(1).inner_text().split()
            for row in seen.page.locator("tbody tr").all()
        }
        assert told[False][0] == "bob"
        assert len(told[False]) == 2, "with the account"
        assert told[True] not in ([], ["bob"])
        assert len(told[True]) == 1
        assert "The site's access policy hides" in seen.page.locator("main").inner_text()


def test_people_see_their_own_chains_only(browser: Browser, loop: SeededLoop) -> None:
    with seeded(loop, Peer(4_321, "bob")) as address, visit(browser, address) as seen:
        seen.go("/")
        names = seen.page.locator("#chains-now ~ table tbody th a").all_inner_texts()
        assert names == ["nightly-eval", "protein-fold"]
        assert seen.page.get_by_role("link", name="Audit").count() == 0
        assert seen.go("/chains/llm-pretrain-k3q9") in (403, 404)
        assert seen.go("/allocation") == 200
        assert "llm-pretrain" not in seen.page.locator("main").inner_text()
        assert seen.go("/audit") == 403
        assert (
            "administrator" in seen.page.locator("main").inner_text()
            or "admin" in seen.page.locator("main").inner_text()
        )


def test_a_cluster_that_does_not_answer_is_told_above_all(browser: Browser, tmp_path: Path) -> None:
    with seeded(SeededLoop.of(tmp_path, everything(), stale=True)) as address, visit(browser, address) as seen:
        seen.go("/")
        assert "does not answer" in seen.page.get_by_role("alert").inner_text()


def _open_all(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")


def _squeezed(page: Page) -> list[str]:
    """Cells in which hardly a word has room on a line."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll('th, td')].filter(cell => {
            const inside = document.createRange();
            inside.selectNodeContents(cell);
            const lines = inside.getBoundingClientRect().height / 20;
            return cell.innerText.length > 4 && lines > 3 + cell.innerText.length / 6;
        }).map(cell => cell.innerText)"""
    )
    return found


def _findings(page: Page, options: dict[str, Any]) -> list[str]:
    """The serious and critical findings of axe-core, which the page has loaded."""
    found = page.evaluate("options => axe.run(options)", {"resultTypes": ["violations"], **options})
    return [_finding(each) for each in found["violations"] if each["impact"] in ("serious", "critical")]


def _finding(violation: dict[str, Any]) -> str:
    return f"{violation['id']}: {violation['help']}: {[node['html'][:120] for node in violation['nodes'][:3]]}"
