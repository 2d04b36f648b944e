"""A real Slurm for the tests of this directory; ``tests/slurm_testbed.py`` lists what it offers.

Without Slurm the tests skip, with one line; in continuous integration they fail instead.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import NoTestbed, Testbed, state_directory
from user_shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
SHARED = ("fast_clock_testbed", "session_real_clock_testbed")
"""Fixtures with a Slurm that tests have one after the other."""
APART = {
    "test_rest_backend": "rest",
    "test_scenario": "long",
    "test_chaos_round": "long",
    "test_tutorial_on_slurm": "long",
    "test_howto_on_slurm": "howto",
    "test_like_sbatch": "sbatch",
}
"""Files whose tests have such a Slurm to themselves, as they take a third of the time each."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all tests that share a Slurm, to start it one time; other tests start another anywhere."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            item.add_marker(pytest.mark.xdist_group(_slurm_of(item)))


def _slurm_of(item: pytest.Item) -> str:
    shared = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
    return f"{shared[0]}-{APART.get(item.path.stem, 'others')}" if shared else item.path.stem


def started(purpose: str, speed: int, conf_lines: Sequence[str] = ()) -> Iterator[Testbed]:
    """A testbed that ends with this session, or with this process if the session does not come to its end."""
    try:
        testbed = Testbed.start(state_directory(purpose), speed=speed, conf_lines=conf_lines)
    except NoTestbed as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"no Slurm to test on: {missing}")
        pytest.skip(f"no Slurm to test on: {missing}")
    with testbed.stopped_after():
        yield testbed


@pytest.fixture(scope="session")
def fast_clock_testbed() -> Iterator[Testbed]:
    """Clock x60, as the last test has left it."""
    yield from started("live", 60)


@pytest.fixture(scope="session")
def session_real_clock_testbed() -> Iterator[Testbed]:
    """Clock x1, as the last test has left it."""
    yield from started("real", 1)


@pytest.fixture
def oversubscribing_testbed() -> Iterator[Testbed]:
    """Clock x60; its partition ``force`` gives each node to two jobs, whatever they ask for."""
    line = "PartitionName=force Nodes=ALL OverSubscribe=FORCE:2 MaxTime=2-00:00:00 State=UP"
    yield from started("force", 60, (line,))


@pytest.fixture
def testbed(fast_clock_testbed: Testbed) -> Testbed:
    """Clock x60, without jobs, everything up."""
    fast_clock_testbed.reset()
    return fast_clock_testbed


@pytest.fixture
def privileged_testbed(fast_clock_testbed: Testbed) -> Testbed:
    """``testbed`` with several users and accounting."""
    if not fast_clock_testbed.privileged:
        pytest.skip("several users and accounting need a testbed started by root")
    fast_clock_testbed.reset()
    return fast_clock_testbed


@pytest.fixture
def real_clock_testbed(session_real_clock_testbed: Testbed) -> Testbed:
    """Clock x1, without jobs, everything up."""
    session_real_clock_testbed.reset()
    return session_real_clock_testbed


@pytest.fixture
def shell(testbed: Testbed) -> Iterator[Shell]:
    """A user's shell in an empty home."""
    yield from opened(testbed)


def opened(testbed: Testbed) -> Iterator[Shell]:
    """A user's shell on this testbed, until it is taken back."""
    home = state_directory("shell")
    home.mkdir(mode=0o755)
    shell = Shell(testbed, home)
    try:
        yield shell
    finally:
        shell.end()
        shutil.rmtree(home)
