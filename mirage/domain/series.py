"""Series: jobs that one user submits repeatedly under one name, counters in the name aside."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIGITS = re.compile("[0-9]+")
_SPREAD = np.int64(0x1F0D3804B2E6A5C7)

Int64 = NDArray[np.int64]


def hashed_users(users: Iterable[str]) -> Int64:
    """One number for each user, equal on every machine."""
    return np.array([_hashed(user) for user in users], dtype=np.int64)


def hashed_names(names: Iterable[str]) -> Int64:
    """One number for each job name; ``run-7`` and ``run-12`` have the same."""
    return np.array([_hashed_name(name) for name in names], dtype=np.int64)


def series_of(user: Int64, name: Int64) -> Int64:
    """The series of each job, from the numbers of its user and its name: within 32 bits, so that it packs well."""
    mixed = user * _SPREAD + name
    folded: Int64 = (mixed ^ (mixed >> 32)) & 0xFFFF_FFFF
    return folded


def _hashed(text: str) -> int:
    return int.from_bytes(
        blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little", signed=True
    )


@lru_cache(maxsize=1 << 18)
def _hashed_name(name: str) -> int:
    """Kept: the same names come again with every look at the queue."""
    return _hashed(_DIGITS.sub("#", name))
