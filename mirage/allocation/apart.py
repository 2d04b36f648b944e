"""Run independent computations in separate processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from mirage.ownprocess import spawning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")


def run_apart(run: Callable[..., T], places: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """Results of ``run`` for the arguments of each place, in order; in this process where one is enough."""
    if min(workers, len(places)) <= 1:
        yield from (run(*place) for place in places)
        return
    with ProcessPoolExecutor(min(workers, len(places)), spawning()) as pool:
        yield from pool.map(run, *zip(*places, strict=True))
