"""Create the screenshots of docs/screens from a played demo: ``make screens``."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from conftest import CHROMIUM
from played import DEMO, END, OWNER, SWEEP, played, run_tasks, sweep
from playwright.sync_api import sync_playwright
from server import opened_by, serving
from visiting import PHONE, WIDE, visit

from mirage.api.access.protocol import Peer
from mirage.api.app import create_app
from mirage.api.taskwatch import TaskWatch
from mirage.backends.file_check import Viewer
from mirage.replay.runs import ReplaySpec, RunState

if TYPE_CHECKING:
    from played import PlayedDemo
    from playwright.sync_api import Browser

PICTURES = {
    "overview": ("/", WIDE, "light"),
    "overview-dark": ("/", WIDE, "dark"),
    "overview-phone": ("/", PHONE, "light"),
    "chain": ("/chains/chat-service", WIDE, "light"),
    "chain-phone": ("/chains/train-llm", PHONE, "dark"),
    "allocation": ("/allocation", WIDE, "light"),
    "tasks-dark": ("/allocation", WIDE, "dark"),
    "tasks-phone": ("/chains/lr-sweep", PHONE, "light"),
    "queue": ("/queue?partition=gpu&state=pending", WIDE, "light"),
    "predict": ("/predict?partition=gpu&nodes=4&limit=24h", WIDE, "light"),
    "predictors": ("/predictors", WIDE, "light"),
    "replays": ("/replays", WIDE, "light"),
    "replay": ("/replays/", WIDE, "light"),
    "audit": ("/audit", WIDE, "light"),
    "configuration": ("/configuration", WIDE, "light"),
    "login": ("/login", WIDE, "light"),
}
_NOT_LIVE = ("/login", "/predict?", "/configuration")
"""Pages that do not follow what happens."""
_WINDOW = ("/audit", "/configuration")
"""Long pages, of which a window is shown."""
_SECTION, _MARGIN = "section:has(#chains-now)", 16
"""What ``demo.png`` shows of the overview, and pixels around it."""
_HOUR, _DAY = 3_600, 86_400
_REPLAY = ReplaySpec(
    trace="generated:demo:1",
    cluster="demo",
    predictors=("reactive", "fixed:6h", "average", "quantile", "slurm"),
    nodes=1,
    limit=_DAY,
    start="2025-01-09",
    end="2025-01-12",
    every=4 * _HOUR,
    tick=600,
    links=2,
    partition="gpu",
)
_PATIENCE = 900.0
"""Seconds after which a replay is given up."""


def main(folder: Path, names: list[str]) -> None:
    """Play the demo and photograph it: at ``DEMO`` the chains of the overview, at ``END`` all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    world = Path(tempfile.gettempdir(), "mirage-demo")  # the page of the configuration shows this name
    world.mkdir(mode=0o700)
    try:
        with played(world, DEMO) as demo, demo.answering(), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            _photograph_all(demo, browser, world, folder, names or ["demo", *PICTURES])
            browser.close()
    finally:
        shutil.rmtree(world)


def _photograph_all(demo: PlayedDemo, browser: Browser, world: Path, folder: Path, names: list[str]) -> None:
    shown = replace(demo.shown, tasks=TaskWatch(lambda owner: Viewer(owner, os.getuid(), own=True)))
    with serving(opened_by(create_app(shown), Peer(os.getuid(), OWNER))) as address:
        if "demo" in names:
            _photograph(browser, address, "/", WIDE, "light", folder / "demo.png", _SECTION)
        demo.play(SWEEP)
        demo.request(sweep(world / "tasks"))
        demo.play(END)
        run_tasks(demo, world / "tasks")
        run = _replayed(demo) if {"replays", "replay"} & set(names) else ""
        for name in names:
            if name in PICTURES:
                path, size, scheme = PICTURES[name]
                target = path + run if name == "replay" else path
                _photograph(browser, address, target, size, scheme, folder / f"{name}.png")
        if shown.feed is not None:
            shown.feed.close()


def _photograph(
    browser: Browser, address: str, path: str, size: tuple[int, int], scheme: str, file: Path, part: str = ""
) -> None:
    """Store the page as ``file``, or a ``part`` of it."""
    with visit(browser, address, size, scheme) as seen:
        print(f"{file.stem}: {path} {seen.go(path)}", *seen.complaints)  # noqa: T201
        if not path.startswith(_NOT_LIVE):
            seen.page.locator("#live-switch:not(.off)").wait_for()
        if not part:
            seen.page.screenshot(path=file, full_page=not path.startswith(_WINDOW))
            return
        box = seen.page.locator(part).bounding_box()
        assert box is not None
        around = {"x": box["x"] - _MARGIN, "y": box["y"] - _MARGIN}
        around |= {side: box[side] + 2 * _MARGIN for side in ("width", "height")}
        seen.page.screenshot(path=file, full_page=True, clip=around)  # type: ignore[arg-type]


def _replayed(demo: PlayedDemo) -> str:
    """Run one replay to its end; return its ID."""
    runs = demo.service.replays
    assert runs is not None
    run, until = runs.submit(_REPLAY, OWNER), time.monotonic() + _PATIENCE
    while not run.over and time.monotonic() < until:
        time.sleep(0.5)
        found = runs.of(run.run_id)
        assert found is not None
        run = found
    assert run.state is RunState.DONE, run
    return run.run_id


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
