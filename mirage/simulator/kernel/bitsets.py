"""Sets of nodes as rows of 64-bit words."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from mirage.numbaimport import intrinsic, types
from mirage.simulator.kernel.compile import compiled, inlined

ONE = np.uint64(1)
ZERO = np.uint64(0)
ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)


@intrinsic  # type: ignore[untyped-decorator]  # numba's types are not read
def _popcount(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]  # numba's types are not read
def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@inlined
def size(word: np.uint64) -> int:
    """Members in one word."""
    return np.int64(_popcount(word))


@inlined
def assign(target: np.ndarray, source: np.ndarray) -> None:
    """Copy a row (element by element: array assignment would allocate to guard against overlap)."""
    for k in range(target.shape[0]):
        target[k] = source[k]


@inlined
def count(row: np.ndarray) -> int:
    """Members of the set."""
    total = 0
    for k in range(row.shape[0]):
        total += np.int64(_popcount(row[k]))
    return total


@inlined
def count_common(a: np.ndarray, b: np.ndarray) -> int:
    """Members of both sets."""
    total = 0
    for k in range(a.shape[0]):
        total += np.int64(_popcount(a[k] & b[k]))
    return total


@inlined
def has(row: np.ndarray, member: int) -> bool:
    """Whether ``member`` is in the set."""
    return (row[member >> 6] >> np.uint64(member & 63)) & ONE != ZERO


@inlined
def add(row: np.ndarray, member: int) -> None:
    """Put ``member`` into the set."""
    row[member >> 6] |= ONE << np.uint64(member & 63)


@inlined
def discard(row: np.ndarray, member: int) -> None:
    """Take ``member`` out of the set."""
    row[member >> 6] &= ~(ONE << np.uint64(member & 63))


@inlined
def next_member(row: np.ndarray, start: int) -> int:
    """The first member >= ``start``, -1 if there is none."""
    words = row.shape[0]
    k = start >> 6
    if k >= words:
        return -1
    word = row[k] & (ALL << np.uint64(start & 63))
    while word == ZERO:
        k += 1
        if k >= words:
            return -1
        word = row[k]
    return (k << 6) + np.int64(_trailing_zeros(word))


@inlined
def next_gap(row: np.ndarray, start: int) -> int:
    """The first number >= ``start`` that is not a member (possibly past the end)."""
    words = row.shape[0]
    k = start >> 6
    if k >= words:
        return start
    word = ~row[k] & (ALL << np.uint64(start & 63))
    while word == ZERO:
        k += 1
        if k >= words:
            return words << 6
        word = ~row[k]
    return (k << 6) + np.int64(_trailing_zeros(word))


@compiled
def tightest_run(row: np.ndarray, wanted: int) -> tuple[int, int]:
    """The run of consecutive members to take from next: (first member, length); length 0 for the empty set.

    Best fit: the shortest run of at least ``wanted`` members, the longest run if none is long enough,
    the lowest-numbered among equals (man slurm.conf, select plugins: best fit on consecutive nodes).
    """
    best, length = -1, 0
    start = next_member(row, 0)
    while start >= 0:
        end = next_gap(row, start)
        size = end - start
        better = size < length if length >= wanted and size >= wanted else size > length
        if size >= wanted and length < wanted:
            better = True
        if length >= wanted and size < wanted:
            better = False
        if better:
            best, length = start, size
            if size == wanted:
                break
        start = next_member(row, end)
    return best, length


@inlined
def take_first(row: np.ndarray, wanted: int, taken: np.ndarray) -> int:
    """Move up to ``wanted`` members from ``row`` to ``taken``, the lowest first; returns how many."""
    left, member = wanted, next_member(row, 0)
    while left > 0 and member >= 0:
        discard(row, member)
        add(taken, member)
        left -= 1
        member = next_member(row, member + 1)
    return wanted - left


@compiled
def take_best_fit(row: np.ndarray, wanted: int, taken: np.ndarray) -> int:
    """Move up to ``wanted`` members from ``row`` to ``taken``, best-fitting runs first; returns how many."""
    left = wanted
    while left > 0:
        first, length = tightest_run(row, left)
        if length == 0:
            break
        for member in range(first, first + min(left, length)):
            discard(row, member)
            add(taken, member)
        left -= min(left, length)
    return wanted - left
