"""Tasks confined to as few nodes as they need: those on which each would be, were the pool empty."""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.encode import new_draft
from mirage.allocation.ddl.kernel.layout import Room, Site
from mirage.allocation.ddl.kernel.operations import nodes_alone


def fewest_nodes(site: Site) -> np.ndarray:
    """[T] On how few nodes of the empty pool each task fits; 0 for one that never does."""
    nodes = site.nodes
    room = Room(np.ones(len(site.devices)), nodes["cpus"].astype(np.int32), nodes["memory"].astype(np.int64))
    return np.asarray(nodes_alone(site, room, new_draft(site), np.zeros(len(site.needs), dtype=np.int64)))


def confined(site: Site) -> Site:
    """The site with every task that can ever run kept to its fewest nodes."""
    fewest, needs = fewest_nodes(site), site.needs.copy()
    needs["max_nodes"] = np.where(fewest > 0, fewest, needs["max_nodes"])
    return site._replace(needs=needs)
