"""Settings of the C library's allocator for memory that is no longer used."""

from __future__ import annotations

import ctypes

_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
"""Parameters of ``mallopt`` (malloc.h of glibc)."""
_MOST_ARENAS = 2
_LARGE = 1 << 20
"""Bytes from which on memory is given back as soon as it is free."""


def keep_heap_small() -> None:
    """Have freed memory given back; to be called before the process has threads.

    glibc keeps up to eight heaps for each CPU, and in each what was once used: a daemon that answers in many
    threads would keep as much for each of them as its largest answer took. Does nothing with other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, _MOST_ARENAS)
        mallopt(_MMAP_THRESHOLD, _LARGE)
