"""How this kernel is compiled: by ``mirage.kernel_compiler``, with a cache of its own."""

from __future__ import annotations

from pathlib import Path

from mirage.kernel_compiler import Compiler

_UNITS = Compiler(Path(__file__).parent)
compiled = _UNITS.compiled
inlined = _UNITS.inlined
