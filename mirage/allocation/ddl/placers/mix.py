"""The usual tasks of a site, and their value of a part of a device: for look-ahead placement policies.

The usual tasks are all tasks of the table: an operator's record, or the task file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.encode import NO_MIX, likenesses
from mirage.allocation.ddl.kernel.layout import RATES, USUAL, Mix
from mirage.allocation.ddl.kernel.placing_fragments import GRID
from mirage.allocation.programmes import scipy_modules

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.ddl.kernel.layout import Site

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
