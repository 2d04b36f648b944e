"""How these loops are compiled: as the pool's kernel is, with a cache of its own."""

from __future__ import annotations

from pathlib import Path

from mirage.simulator.kernel.compile import Compiler

_SEARCH = Compiler(Path(__file__).parent)
compiled = _SEARCH.compiled
inlined = _SEARCH.inlined
