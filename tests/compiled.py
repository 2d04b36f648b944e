"""Compile once what many processes of the tests load: modules, and numba's kernels, kept in the user's cache.

Processes of other users cannot keep what they compile of a module.
"""

from __future__ import annotations

from compileall import compile_dir
from pathlib import Path

from mirage.bootstrap.compiling_allocation import compile_pool, compile_requests
from mirage.bootstrap.simulated import compile_simulator

if __name__ == "__main__":
    for folder in ("mirage", "plugins", "slurm-testbed"):
        compile_dir(Path(__file__).resolve().parents[1] / folder, quiet=1, workers=0)
    compile_simulator()
    compile_pool()
    compile_requests()
