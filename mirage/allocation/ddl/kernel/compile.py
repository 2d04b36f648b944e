"""How this kernel is compiled: as the simulator's is, with a cache of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from mirage.numbaimport import config, njit
from mirage.simulator.kernel.compile import Compiler, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_FOLDER = cache_folder(Path(__file__).parent)


def compiled_with_arrays(function: F) -> F:
    """Compile ``function``. Unlike the kernel of the simulated pool these loops make arrays of their own."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_FOLDER or "")
    try:
        return cast("F", njit(nogil=True, cache=_FOLDER is not None, error_model="numpy")(function))
    finally:
        config.CACHE_DIR = before


_POOL = Compiler(Path(__file__).parent)
compiled = _POOL.compiled
inlined = _POOL.inlined
