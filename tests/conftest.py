"""Fixtures shared by every test."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator

# Machines are shared and noisy: no test fails for taking long. Elsewhere each run draws new examples; continuous
# integration repeats the same ones, so that what fails there fails everywhere.
settings.register_profile("mirage", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("mirage")

# Suites that several tests share report what differed, as tests do.
pytest.register_assert_rewrite("contract", "live_world")

# Each process of the tests has a CPU to itself: with a team of threads in each, small networks train ten
# times more slowly. Read by torch and numpy as they are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is collected, modules of large libraries above all, stays until the end: to search it for garbage again and
# again takes two fifths of the time in which it is collected.
gc.disable()

_LONGEST_ID = 80


def pytest_collection_finish() -> None:
    """From here on garbage is searched for, without the objects that exist by now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Commands that run in the process of the tests may change its umask; what starts later would inherit it."""
    former = os.umask(0o077)
    os.umask(former)
    try:
        return (yield)
    finally:
        os.umask(former)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A name for a value too long to be one, which each report and each worker would repeat."""
    return f"{argname}-of-{len(val)}" if isinstance(val, str | bytes) and len(val) > _LONGEST_ID else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests on a real Slurm were skipped: one line a reason, not one a test, and without being asked."""
    places = ("tests/live/", "tests/testbed/")
    skipped = [found for found in terminalreporter.stats.get("skipped", ()) if found.nodeid.startswith(places)]
    for reason, count in Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped).items():
        terminalreporter.write_line(f"{count} tests on a real Slurm skipped: {reason}")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory of published traces kept next to the project; tests that need it skip without it."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "traces"
    if not folder.is_dir():
        pytest.skip(f"published traces not found: {folder}")
    return folder.parent
