"""Confine tasks to as few nodes as each would need in the empty pool."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.encode import encode_site, new_draft
from mirage.allocation.ddl.kernel.layout import Room, Site
from mirage.allocation.ddl.kernel.operations import nodes_alone

if TYPE_CHECKING:
    from mirage.domain.pool import Pool
    from mirage.domain.task import TaskTable


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
