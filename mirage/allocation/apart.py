"""Runs that know nothing of each other, each in a process of its own."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


def run_apart(run: Callable[..., T], places: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """What ``run`` answers for the arguments of each place, in their order; here, where one process is enough."""
    if min(workers, len(places)) <= 1:
        yield from (run(*place) for place in places)
        return
    # Started afresh: forking a process that has threads (a progress bar) is not safe.
    with ProcessPoolExecutor(min(workers, len(places)), get_context("spawn")) as pool:
        yield from pool.map(run, *zip(*places, strict=True))
