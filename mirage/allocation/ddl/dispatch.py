"""The one decision step that the simulated pool and the real engine share: a view in, moves out."""

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
    """How the pool is run, whoever orders and places."""

    strict: bool = False
    """Nobody passes a task that does not fit; otherwise later ones may."""
    preempt: bool = False
    """Tasks with a checkpoint (``restart`` is not NaN) may be stopped for those before them."""
    move: bool = False
    """With ``preempt``: they may also be stopped to run on elsewhere, where that makes room for others."""
    quantum: float = float("inf")
    """Seconds after which it is decided again while anything waits: for policies whose mind changes with time."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What to do now: stop these tasks, then start those. A task in both moves elsewhere."""

    starts: tuple[Placement, ...] = ()
    preemptions: tuple[int, ...] = ()


@runtime_checkable
class Rearranger(Protocol):
    """A placement policy that decides with preemption in one call, by the rules of ``rearranging`` and
    ``repacking``."""

    def rearrange(
        self, view: PoolView, order: NDArray[np.int32], *, strict: bool, move: bool
    ) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
        """Who starts where, and who is preempted for it."""


class BadScores(MirageError):
    """An ordering gave what cannot be sorted."""


def dispatch(view: PoolView, ordering: Ordering, placer: Placer, rules: Rules) -> Moves:
    """Who starts where now, and who gives up devices for it. Nothing where nothing is pending."""
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
    """The pending by score; ties by submission. Raises ``BadScores``."""
    scores = np.asarray(ordering.score(view), dtype=np.float64)
    if scores.shape != view.pending.shape:
        raise BadScores(f"{ordering.name}: {scores.shape} scores for {len(view.pending)} tasks")
    if np.isnan(scores).any():
        task = view.tasks.name[int(view.pending[np.isnan(scores).argmax()])]
        raise BadScores(f"{ordering.name}: the score of task {task} is not a number")
    return view.pending[np.argsort(scores, kind="stable")]
