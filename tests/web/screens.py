"""Create the screenshots of docs/screens from invented chains: ``make screens``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from chains_seen import everything
from conftest import CHROMIUM
from playwright.sync_api import sync_playwright
from seeded import SeededLoop
from server import seeded
from visiting import PHONE, WIDE, visit
from working import sweeping

PICTURES = {
    "overview": ("/", WIDE, "light"),
    "overview-dark": ("/", WIDE, "dark"),
    "overview-phone": ("/", PHONE, "light"),
    "chain": ("/chains/llm-pretrain-k3q9", WIDE, "light"),
    "chain-phone": ("/chains/chat-service-p2m4", PHONE, "dark"),
    "allocation": ("/allocation", WIDE, "light"),
    "tasks-dark": ("/allocation", WIDE, "dark"),
    "tasks-phone": ("/chains/lr-sweep-q8d3", PHONE, "light"),
    "queue": ("/queue?partition=gpu&state=running", WIDE, "light"),
    "predict": ("/predict?partition=gpu&nodes=4&limit=24h", WIDE, "light"),
    "predictors": ("/predictors", WIDE, "light"),
    "replays": ("/replays", WIDE, "light"),
    "replay": ("/replays/a1b2c3d4e5f6", WIDE, "light"),
    "audit": ("/audit", WIDE, "light"),
    "configuration": ("/configuration", WIDE, "light"),
    "login": ("/login", WIDE, "light"),
}


_NOT_LIVE = ("/login", "/predict?", "/configuration")
"""Pages that do not follow what happens."""


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, sync_playwright() as playwright:
        loop = SeededLoop.of(Path(state), (*everything(), sweeping(Path(state) / "tasks")))
        with seeded(loop) as address:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for name in names or PICTURES:
                path, size, scheme = PICTURES[name]
                with visit(browser, address, size, scheme) as seen:
                    print(f"{name}: {path} {seen.go(path)}", *seen.complaints)  # noqa: T201
                    if not path.startswith(_NOT_LIVE):
                        seen.page.locator("#live-switch:not(.off)").wait_for()
                    seen.page.screenshot(path=folder / f"{name}.png", full_page=True)
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
