"""The built-in placement policies: a whole pass over the order is one compiled call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.encode import encode_site, new_draft
from mirage.allocation.ddl.kernel import layout
from mirage.allocation.ddl.kernel.layout import Room
from mirage.allocation.ddl.kernel.placing import Placed, place_in_order
from mirage.allocation.ddl.kernel.rearranging import Holding, rearrange
from mirage.allocation.ddl.kernel.repacking import repack
from mirage.allocation.ddl.placers.confining import confined
from mirage.allocation.ddl.placers.mix import usual_mix
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.kernel.layout import Draft, Mix, Site
    from mirage.domain.pool import Pool, PoolView
    from mirage.domain.task import TaskTable

CODES = {
    "first-fit": layout.FIRST_FIT,
    "best-fit": layout.BEST_FIT,
    "best-fit-all": layout.BEST_FIT_ALL,
    "load-balance": layout.BALANCE,
    "consolidate": layout.CONSOLIDATE,
    "random": layout.RANDOM,
    "dot-product": layout.DOT_PRODUCT,
    "pack": layout.PACK,
    "fgd": layout.FRAGMENTS,
    "foresight": layout.FORESIGHT,
}
AHEAD = (layout.FRAGMENTS, layout.FORESIGHT)
MEMO = 1 << 16
"""Number of ratings cached by the look-ahead placement policies: 1 MiB."""


class CompiledPlacer:
    """A placement policy of the kernel, by name."""

    def __init__(self, name: str, *, patient: bool = False) -> None:
        """``name``: one of ``CODES``; ``patient``: as in ``placers.patience``."""
        self.name = f"patient:{name}" if patient else name
        self.code = CODES[name]
        self._patient = patient
        self._known: tuple[TaskTable, Pool, Site, Draft] | None = None
        self._mixed: tuple[Site, Mix] | None = None

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        """See ``ports.Placer``."""
        site, draft = self._tables(view)
        found = self._pass(view, site, draft, order, strict)
        if self._patient and not found and not len(view.running):
            plain = encode_site(view.tasks, view.pool)
            found = self._pass(view, plain, self.draft(plain), order, strict)[:1]
        return found

    def rearrange(
        self, view: PoolView, order: NDArray[np.int32], *, strict: bool, move: bool
    ) -> tuple[tuple[Placement, ...], tuple[int, ...]]:
        """See ``dispatch.Rearranger``."""
        site, draft = self._tables(view)
        placed = new_placed(site, order)
        kept = np.zeros(len(view.tasks), dtype=np.uint8)
        holding = Holding(view.task_node, view.held_from, view.held, kept)
        tables = (site, _room(view), _room(view), draft, holding, order, strict, self.code, placed)
        count = repack(*tables, new_placed(site, order)) if move else rearrange(*tables)
        displaced = order[(view.task_node[order] >= 0) & (kept[order] == 0)]
        return placements(placed, count), tuple(displaced.tolist())

    def _pass(
        self, view: PoolView, site: Site, draft: Draft, order: NDArray[np.int32], strict: bool
    ) -> tuple[Placement, ...]:
        placed = new_placed(site, order)
        return placements(placed, place_in_order(site, _room(view), draft, order, strict, self.code, placed))

    def site(self, site: Site) -> Site:
        """The tables that this placement policy reads."""
        return confined(site) if self._patient else site

    def _tables(self, view: PoolView) -> tuple[Site, Draft]:
        """The tables of the view's tasks and pool, built once for each."""
        if self._known is None or self._known[0] is not view.tasks or self._known[1] is not view.pool:
            site = self.site(encode_site(view.tasks, view.pool))
            self._known = (view.tasks, view.pool, site, self.draft(site))
        return self._known[2:]

    def draft(self, site: Site) -> Draft:
        """Working memory as this placement policy needs it."""
        if self.code not in AHEAD:
            return new_draft(site)
        if self._mixed is None or self._mixed[0] is not site:
            self._mixed = (site, usual_mix(site, priced=self.code == layout.FORESIGHT))
        return new_draft(site, self._mixed[1], MEMO)


def first_fit() -> CompiledPlacer:
    """The first node with room."""
    return CompiledPlacer("first-fit")


def best_fit() -> CompiledPlacer:
    """The node on which the fewest devices are free."""
    return CompiledPlacer("best-fit")


def best_fit_all() -> CompiledPlacer:
    """The node with the least free devices and CPUs together."""
    return CompiledPlacer("best-fit-all")


def load_balance() -> CompiledPlacer:
    """The node with the largest free part."""
    return CompiledPlacer("load-balance")


def consolidate() -> CompiledPlacer:
    """On the fewest nodes and islands; several nodes below one switch if possible."""
    return CompiledPlacer("consolidate")


def at_random() -> CompiledPlacer:
    """A random node with room, the same for the same task each time, so that runs can be repeated."""
    return CompiledPlacer("random")


def dot_product() -> CompiledPlacer:
    """The node whose free vector has the smallest product with the needs of the task."""
    return CompiledPlacer("dot-product")


def pack() -> CompiledPlacer:
    """Shared devices before whole ones, nodes in use before empty ones."""
    return CompiledPlacer("pack")


def fgd() -> CompiledPlacer:
    """Where the expected fragments grow least (Weng et al., ATC'23)."""
    return CompiledPlacer("fgd")


def foresight() -> CompiledPlacer:
    """As ``fgd``, but with regard to the rest of shared devices, and to CPUs that run out before devices."""
    return CompiledPlacer("foresight")


def _room(view: PoolView) -> Room:
    """A copy of the free resources, to be changed."""
    return Room(view.free.copy(), view.free_cpus.copy(), view.free_memory_mb.copy())


def new_placed(site: Site, order: NDArray[np.int32]) -> Placed:
    """Working memory for placing all of ``order``."""
    devices = site.needs["devices"][order]
    parts = np.minimum(np.maximum(devices, 1), len(site.nodes))
    return Placed(
        tasks=np.zeros(len(order), dtype=np.int32),
        devices_from=np.zeros(len(order) + 1, dtype=np.int64),
        devices=np.zeros(int(devices.sum()), dtype=np.int32),
        nodes_from=np.zeros(len(order) + 1, dtype=np.int64),
        nodes=np.zeros(int(parts.sum()), dtype=np.int32),
    )


def placements(placed: Placed, count: int) -> tuple[Placement, ...]:
    """The first ``count`` placements."""
    return tuple(
        Placement(
            task=int(placed.tasks[i]),
            devices=placed.devices[placed.devices_from[i] : placed.devices_from[i + 1]],
            nodes=placed.nodes[placed.nodes_from[i] : placed.nodes_from[i + 1]],
        )
        for i in range(count)
    )
