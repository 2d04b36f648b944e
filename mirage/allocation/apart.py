"""Runs that know nothing of each other, each in a process of its own."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from mirage.ownprocess import spawning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


def run_apart(run: Callable[..., T], places: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """What ``run`` answers for the arguments of each place, in their order; here, where one process is enough."""
    if min(workers, len(places)) <= 1:
        yield from (run(*place) for place in places)
        return
    with ProcessPoolExecutor(min(workers, len(places)), spawning()) as pool:
        yield from pool.map(run, *zip(*places, strict=True))
