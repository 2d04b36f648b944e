"""Memory for reading a trace: a small packed file may hold more rows than the machine can."""

from __future__ import annotations

import re
import resource
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHARE = 2
"""A half of what is free: other programs run on a login node."""
_KB = re.compile(r"^(?:MemAvailable|VmData):\s+([0-9]+) kB$", re.MULTILINE)
_MB = 1 << 20


@contextmanager
def within_free_memory(path: str) -> Iterator[None]:
    """Limit this process to its current memory plus half of the machine's free memory.

    Raises ``TraceError`` where that is not enough. Where the system does not say what is free, nothing is bounded.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _limit()
    if limit is None or (before != resource.RLIM_INFINITY and before <= limit):
        limit = before
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    except MemoryError as error:
        problem = "out of memory: it holds more than fits into half of the free memory; split it"
        raise TraceError(path, 0, "", problem) from error
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def _limit() -> int | None:
    """Bytes of data that this process may have in all; ``None``: that is not known."""
    try:
        texts = [
            Path(name).read_text(encoding="ascii", errors="replace")
            for name in ("/proc/meminfo", "/proc/self/status")
        ]
    except OSError:
        return None
    found = [_KB.search(text) for text in texts]
    if not all(found):
        return None
    free, used = (int(each[1]) << 10 for each in found if each)
    return used + max(free // _SHARE, _MB)
