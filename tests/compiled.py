"""Compile what the tests run of numba's kernels, once: it is kept in the user's cache."""

from __future__ import annotations

from mirage.bootstrap.compiling import compile_simulator
from mirage.bootstrap.compiling_pool import compile_pool
from mirage.bootstrap.compiling_requests import compile_requests

if __name__ == "__main__":
    compile_simulator()
    compile_pool()
    compile_requests()
