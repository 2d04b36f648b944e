"""A browser, and pages that must not complain."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from chains_seen import everything
from seeded import SeededLoop
from server import seeded
from working import sweeping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium, the system's: none is ever downloaded."""
    if not shutil.which(CHROMIUM):
        pytest.skip(f"the page is tested in a real browser: {CHROMIUM} (apt install chromium) is not here")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright (pip)")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page on chains in every condition, for an administrator who only looks."""
    folder = tmp_path_factory.mktemp("standing")
    with seeded(SeededLoop.of(folder, (*everything(), sweeping(folder / "tasks")))) as found:
        yield found


@pytest.fixture
def loop(tmp_path: Path) -> SeededLoop:
    """Chains in every condition."""
    return SeededLoop.of(tmp_path, everything())


@pytest.fixture
def address(loop: SeededLoop) -> Iterator[str]:
    """The page on them, for an administrator."""
    with seeded(loop) as found:
        yield found
