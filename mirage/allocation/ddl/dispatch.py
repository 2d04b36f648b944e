"""The decision step that the simulated pool and the real engine share: from a view to moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from mirage.allocation.ddl.rearranging import rearrange
from mirage.allocation.ddl.repacking import repack
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.domain.pool import Placement, PoolView
    from mirage.ports import Ordering, Placer


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the pool, independent of the policies."""

    strict: bool = False
    """No task passes one that does not fit; otherwise later tasks may."""
    preempt: bool = False
    """Tasks with a checkpoint (``restart`` is not NaN) may be preempted by those before them."""
    move: bool = False
    """With ``preempt``: tasks may also be moved elsewhere, where that makes room for others."""
    quantum: float = float("inf")
    """Seconds between two decisions while any task waits: for policies whose scores change with time."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Stop these tasks, then start those. A task in both moves."""

    starts: tuple[Placement, ...] = ()
    preemptions: tuple[int, ...] = ()


@runtime_checkable
class Rearranger(Protocol):
    """A placement policy that decides with preemption in one call, by the rules of ``rearranging`` and
    ``repacking``."""

    def rearrange(
        self, view: PoolView, order: NDArray[np.int32], *, strict: bool, move: bool
    ) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
        """Which tasks start where, and which are preempted for them."""


class BadScores(MirageError):
    """An ordering policy returned scores that cannot be sorted."""


def dispatch(view: PoolView, ordering: Ordering, placer: Placer, rules: Rules) -> Moves:
    """Which tasks start where now, and which are preempted. Empty where no task is pending."""
    if not len(view.pending):
        return Moves()
    order = in_order(view, ordering)
    if not rules.preempt:
        return Moves(placer.place(view, order, strict=rules.strict))
    if isinstance(placer, Rearranger):
        return Moves(*placer.rearrange(view, order, strict=rules.strict, move=rules.move))
    decide = repack if rules.move else rearrange
    return Moves(*decide(view, order, placer, strict=rules.strict))


def in_order(view: PoolView, ordering: Ordering) -> NDArray[np.int32]:
    """The pending tasks by score; ties by submission. Raises ``BadScores``."""
    scores = np.asarray(ordering.score(view), dtype=np.float64)
    if scores.shape != view.pending.shape:
        raise BadScores(f"{ordering.name}: {scores.shape} scores for {len(view.pending)} tasks")
    if np.isnan(scores).any():
        task = view.tasks.name[int(view.pending[np.isnan(scores).argmax()])]
        raise BadScores(f"{ordering.name}: the score of task {task} is not a number")
    return view.pending[np.argsort(scores, kind="stable")]
