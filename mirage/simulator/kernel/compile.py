"""How this kernel is compiled: by ``mirage.kernel_compiler``, with a cache of its own."""

from __future__ import annotations

from pathlib import Path

from mirage.kernel_compiler import Compiler

_SIMULATOR = Compiler(Path(__file__).parent)
compiled = _SIMULATOR.compiled
inlined = _SIMULATOR.inlined
