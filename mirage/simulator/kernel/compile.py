"""How the kernel's functions are compiled: once per version of the kernel, then read from a cache.

Numba's own cache looks only at the file of each function, not at the functions it calls in other files. So
the cache lives in a directory named after the whole kernel's text, numba's version and the CPU: a changed
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
        """Compile ``function`` on first use, without the GIL, cached across processes."""
        return self._compile(function, forceinline=False)

    def inlined(self, function: F) -> F:
        """``compiled``, and always made part of its callers: passing the tables costs more than the function."""
        return self._compile(function, forceinline=True)

    def _compile(self, function: F, forceinline: bool) -> F:
        """Without reference counts (``_nrt``): a kernel only ever writes into tables that its caller holds, and
        counting references took half of its time.
        """
        before = config.CACHE_DIR
        config.CACHE_DIR = str(self._folder or "")
        try:
            return cast(
                "F",
                njit(
                    nogil=True,
                    cache=self._folder is not None,
                    error_model="numpy",
                    forceinline=forceinline,
                    _nrt=False,
                )(function),
            )
        finally:
            config.CACHE_DIR = before


def cache_folder(kernel: Path) -> Path | None:
    """Where compiled code is kept: ``$XDG_CACHE_HOME/mirage/kernel-<digest>``; None where nothing can be."""
    digest = hashlib.sha256(f"{VERSION} {config.CPU_NAME}".encode())
    for source in sorted(kernel.glob("*.py")):
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


_SIMULATOR = Compiler(Path(__file__).parent)
compiled = _SIMULATOR.compiled
inlined = _SIMULATOR.inlined
