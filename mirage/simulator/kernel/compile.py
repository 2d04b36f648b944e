"""How the kernel's functions are compiled: once per version of the kernel, then read from a cache.

Numba's own cache looks only at the file of each function, not at the functions it calls in other files. So
the cache lives in a folder named after the whole kernel's text, numba's version and the processor: a changed
kernel never meets an old cache, and a read-only installation still caches, in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def cache_folder() -> Path:
    """Where compiled code is kept: ``$XDG_CACHE_HOME/mirage/kernel-<digest>``."""
    digest = hashlib.sha256(f"{numba.__version__} {numba.config.CPU_NAME or ''}".encode())
    here = Path(__file__).parent
    for source in sorted(here.glob("*.py")):
        digest.update(source.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mirage" / f"kernel-{digest.hexdigest()[:16]}"


_FOLDER = str(cache_folder())


def compiled(function: F) -> F:
    """Compile ``function`` on first use, without the GIL, cached across processes."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _FOLDER
    try:
        return cast("F", njit(nogil=True, cache=True, error_model="numpy", _nrt=False)(function))
    finally:
        numba.config.CACHE_DIR = before
