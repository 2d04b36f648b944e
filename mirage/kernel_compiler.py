"""Compile the functions of a kernel with numba: once per version of the kernel, then read from a cache.

A kernel is one directory of Python files: the simulator's, and those of the allocation. Numba's own cache looks
only at the file of each function, not at the functions it calls in other files, nor at the options here. So the
cache is a directory named after the whole kernel's text, this file's, numba's version and the CPU: a changed
kernel never meets an old cache, and a read-only installation still caches, in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mirage.numbaimport import VERSION, config, njit
from mirage.ownplaces import check_places

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


class Compiler:
    """Compiles the functions of one kernel: the Python files of one directory, which call no other kernel's."""

    def __init__(self, kernel: Path) -> None:
        """``kernel``: the directory of its files."""
        self._folder = cache_folder(kernel)

    def compiled(self, function: F) -> F:
        """Compile ``function`` on first use, without the GIL, cached across processes.

        Without reference counts (``_nrt``): a kernel only ever writes into tables that its caller holds, and
        counting references took half of its time.
        """
        return self._compile(function, _nrt=False)

    def inlined(self, function: F) -> F:
        """``compiled``, and always made part of its callers: passing the tables costs more than the function."""
        return self._compile(function, _nrt=False, forceinline=True)

    def compiled_with_arrays(self, function: F) -> F:
        """``compiled``, with reference counts: for loops that make arrays of their own."""
        return self._compile(function)

    def _compile(self, function: F, **options: bool) -> F:
        before = config.CACHE_DIR
        config.CACHE_DIR = str(self._folder or "")
        try:
            compiled = njit(nogil=True, cache=self._folder is not None, error_model="numpy", **options)(function)
            return cast("F", compiled)
        finally:
            config.CACHE_DIR = before


def cache_folder(kernel: Path) -> Path | None:
    """Where compiled code is kept: ``$XDG_CACHE_HOME/mirage/kernel-<digest>``; None where nothing can be."""
    digest = hashlib.sha256(f"{VERSION} {config.CPU_NAME}".encode())
    for source in (Path(__file__), *sorted(kernel.glob("*.py"))):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "mirage" / f"kernel-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # $HOME may be another user's, and what lies in the cache is run.
        folder = folder.resolve(strict=True)
        check_places(folder, {0, os.geteuid()})
    except OSError:
        return None
    shared = folder.stat().st_mode & stat.S_ISVTX  # which keeps others from renaming, not from adding
    return folder if not shared and os.access(folder, os.W_OK | os.X_OK) else None
