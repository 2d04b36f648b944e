"""How this kernel is compiled: as the simulator's is, with a cache of its own."""

from __future__ import annotations

from pathlib import Path

from mirage.simulator.kernel.compile import Compiler

_POOL = Compiler(Path(__file__).parent)
compiled = _POOL.compiled
inlined = _POOL.inlined
