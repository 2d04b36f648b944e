"""The built-in placement policies: a whole pass over the order is one compiled call.

Look-ahead policies know the usual tasks of a site and their value of a part of a device. The usual tasks are
all tasks of the table: an operator's record, or the task file.

``patient:NAME`` places as the placement policy NAME does, every task on as few nodes as it needs in the empty
pool. Tasks do not wait indefinitely if such nodes are down: while nothing runs and nothing can be placed in
this way, the first task that fits at all is placed as NAME would place it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.encode import NO_MIX, encode_site, likenesses, new_draft
from mirage.allocation.ddl.kernel import layout
from mirage.allocation.ddl.kernel.layout import RATES, USUAL, Mix, Room, Site
from mirage.allocation.ddl.kernel.operations import nodes_alone
from mirage.allocation.ddl.kernel.placing import Placed, place_in_order
from mirage.allocation.ddl.kernel.placing_fragments import GRID
from mirage.allocation.ddl.kernel.rearranging import HeldDevices, rearrange, repack
from mirage.allocation.programmes import scipy_modules
from mirage.domain.pool import Placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.kernel.layout import Draft
    from mirage.domain.pool import Pool, PoolView, TaskTable
    from mirage.ports import Placer


def fewest_nodes(site: Site) -> np.ndarray:
    """[T] Fewest nodes of the empty pool on which each task fits; 0 for one that never fits."""
    nodes = site.nodes
    room = Room(np.ones(len(site.devices)), nodes["cpus"].astype(np.int32), nodes["memory"].astype(np.int64))
    return np.asarray(nodes_alone(site, room, new_draft(site), np.zeros(len(site.needs), dtype=np.int64)))


def confined(site: Site) -> Site:
    """The site with every task confined to its fewest nodes."""
    fewest, needs = fewest_nodes(site), site.needs.copy()
    needs["max_nodes"] = np.where(fewest > 0, fewest, needs["max_nodes"])
    return site._replace(needs=needs)


class Confined:
    """Tables of confined tasks, built once for each table and pool."""

    def __init__(self) -> None:
        self._known: tuple[TaskTable, Pool, TaskTable] | None = None

    def of(self, tasks: TaskTable, pool: Pool) -> TaskTable:
        """The same tasks, each on its fewest nodes."""
        if self._known is None or self._known[0] is not tasks or self._known[1] is not pool:
            nodes = confined(encode_site(tasks, pool)).needs["max_nodes"].astype(np.int32)
            self._known = (tasks, pool, replace(tasks, max_nodes=nodes))
        return self._known[2]


POPULAR = 0.95
"""The part of the tasks whose types are counted, the most frequent first, as in the scheduler of Weng et al."""


def usual_mix(site: Site, *, priced: bool) -> Mix:
    """The mix of the site's tasks; ``priced``: with the values of parts of devices."""
    if not len(site.needs):
        return NO_MIX
    worth, prices = np.zeros(GRID + 1), np.zeros(likenesses(site))
    if priced:
        worth, prices = _prices(site)
    return Mix(usual_types(site), _rates(site), worth, prices)


def usual_types(site: Site) -> np.ndarray:
    """The most frequent needs of CPUs and devices, with weights that add up to 1."""
    plain = np.stack([site.needs[name].view(np.int64) for name in ("cpus", "share", "devices", "kinds")], axis=1)
    _, first, counts = np.unique(plain, axis=0, return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    reached = np.cumsum(counts[order])
    order = order[: int(np.searchsorted(reached, POPULAR * reached[-1])) + 1]
    types = np.zeros(len(order), dtype=USUAL)
    for name in ("devices", "share", "kinds", "cpus"):
        types[name] = site.needs[name][first[order]]
    types["weight"] = counts[order] / counts[order].sum()
    return types


def _rates(site: Site) -> np.ndarray:
    """CPUs and memory for each device."""
    rates, needs = np.zeros(1, dtype=RATES), site.needs[site.needs["devices"] > 0]
    devices = float((needs["devices"] * needs["share"]).sum())
    if devices > 0:
        rates["cpus"], rates["memory"] = needs["cpus"].sum() / devices, needs["memory"].sum() / devices
    return rates


def _prices(site: Site) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The value of every part of a device, and the price of the share of each row of needs."""
    needs = site.needs
    shared = (needs["devices"] == 1) & (needs["share"] < 1.0)
    parts = np.ceil(needs["share"] * GRID - 1e-6).astype(np.int64)
    sizes, counts = np.unique(parts[shared], return_counts=True)
    paid = cutting_prices(sizes, counts)
    prices = np.zeros(likenesses(site))
    prices[needs["likeness"][shared]] = paid[np.searchsorted(sizes, parts[shared])]
    return best_cut(sizes, paid)[0], prices


def cutting_prices(sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each size, the part of a device that one more share costs if all are cut from the fewest devices.

    The dual prices of Gilmore and Gomory's linear programme of the cutting-stock problem. Its patterns are found
    one after the other: no pattern of shares is worth more than the device from which it is cut.
    """
    if not len(sizes):
        return np.zeros(0)
    optimize, _ = scipy_modules()
    patterns = np.diag(GRID // sizes)
    while True:
        solved = optimize.linprog(-counts, A_ub=patterns, b_ub=np.ones(len(patterns)), method="highs")
        prices = np.asarray(solved.x, dtype=np.float64)
        worth, last = best_cut(sizes, prices)
        if worth[GRID] <= 1.0 + 1e-9:
            return prices
        patterns = np.vstack([patterns, _pattern(sizes, last)])


def best_cut(
    sizes: NDArray[np.int64], prices: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The best value of shares cut from each length, and the last share of such a cut; -1: no cut ends there."""
    worth, last = np.zeros(GRID + 1), np.full(GRID + 1, -1)
    for length in range(1, GRID + 1):
        worth[length] = worth[length - 1]
        fitting = np.flatnonzero(sizes <= length)
        if fitting.size:
            fetched = worth[length - sizes[fitting]] + prices[fitting]
            if fetched.max() > worth[length] + 1e-12:
                worth[length], last[length] = fetched.max(), fitting[fetched.argmax()]
    return worth, last


def _pattern(sizes: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of shares of each size in the best cut of a whole device."""
    pattern, length = np.zeros(len(sizes), dtype=np.int64), GRID
    while length > 0:
        if last[length] < 0:
            length -= 1
        else:
            pattern[last[length]] += 1
            length -= int(sizes[last[length]])
    return pattern


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
        """``name``: one of ``CODES``; ``patient``: as in ``patient:NAME``."""
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
        holding = HeldDevices(view.task_node, view.held_from, view.held, kept)
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


class Patient:
    """A placement policy that is not compiled, with patience."""

    def __init__(self, inner: Placer) -> None:
        self.name = f"patient:{inner.name}"
        self._inner = inner
        self._confined = Confined()

    def place(self, view: PoolView, order: NDArray[np.int32], *, strict: bool) -> tuple[Placement, ...]:
        """See ``ports.Placer``."""
        found = self._inner.place(
            replace(view, tasks=self._confined.of(view.tasks, view.pool)), order, strict=strict
        )
        if found or len(view.running):
            return found
        return self._inner.place(view, order, strict=strict)[:1]


def patient(name: str) -> Placer:
    """The placement policy ``name`` with patience. Raises ``UnknownPolicy`` for an unknown name."""
    inner = registry.placer(name)
    return CompiledPlacer(inner.name, patient=True) if isinstance(inner, CompiledPlacer) else Patient(inner)
