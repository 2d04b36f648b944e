"""The simulator is compiled once, in a separate process; if that fails, all else continues."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mirage.bootstrap.compiling_apart import compile_apart

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def test_it_is_done_once(tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", tmp_path / "told"
    cache.mkdir()
    argv = ("-c", f"open({str(told)!r}, 'a').write('.')")
    assert compile_apart(cache, argv)
    assert compile_apart(cache, argv)
    assert told.read_text() == "."


def test_compiler_that_fails_is_tried_again_later(tmp_path: Path) -> None:
    assert not compile_apart(tmp_path, ("-c", "raise SystemExit('no memory')"))
    assert list(tmp_path.iterdir()) == []
    assert compile_apart(tmp_path, ("-c", ""))


def test_where_nothing_can_be_kept_no_process_is_started(tmp_path: Path) -> None:
    told = tmp_path / "told"
    assert not compile_apart(None, ("-c", f"open({str(told)!r}, 'a').write('.')"))
    assert not told.exists()


def test_memory_of_the_compiler_is_not_that_of_the_caller(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert compile_apart(tmp_path, ("-c", "block = bytearray(400 << 20)"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_compiler_ends_with_the_daemon_that_waits_for_it(tmp_path: Path) -> None:
    told = tmp_path / "told"
    child = (
        "import os, time; from mirage.ownprocess import end_with_parent; end_with_parent(); "
        f"open({str(told)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(300)"
    )
    waits = (
        "from pathlib import Path; from mirage.bootstrap.compiling_apart import compile_apart; "
        f"compile_apart(Path({str(tmp_path)!r}), ('-c', {child!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", waits]) as daemon:
        number = waited_for(lambda: told.read_text() if told.exists() else "").strip()
        daemon.kill()
    waited_for(lambda: not Path("/proc", number).exists() or "Z" in Path("/proc", number, "stat").read_text())


def waited_for(what: Callable[[], T]) -> T:
    """The first true value within a minute."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("not within a minute")
