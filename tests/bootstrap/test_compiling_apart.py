"""The simulator is compiled once, in a process of its own; nobody fails where that fails."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from mirage.bootstrap.compiling_apart import compile_apart

if TYPE_CHECKING:
    from pathlib import Path


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
