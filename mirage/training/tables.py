"""Counterfactual tables: the start that the simulator gives for every submit time on a grid, built and kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.features.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.features.layout import FeatureSchema
    from mirage.simulator.cluster import ClusterConfig

__all__ = ["Table", "TablePlan", "build_table", "load_table"]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Which hand-overs to try. Times in seconds."""

    start: Seconds
    """First episode."""
    end: Seconds
    """No episode starts after this."""
    nodes: tuple[int, ...] = (1, 8)
    """Each start is played once with links of each size."""
    limit: Seconds = 48 * 3_600
    """Time limit of the links; they run to it."""
    every: Seconds = 4 * 3_600
    grid: Seconds = 30 * 60
    partition: str = ""


def build_table(
    trace: JobTable,
    cluster: ClusterConfig,
    plan: TablePlan,
    schema: FeatureSchema,
    folder: Path,
    *,
    workers: int = 1,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Table:
    """Build the table into ``folder``, or finish it: chunks that are there already are kept.

    ``on_progress`` is told the episodes done and in all. Raises ``ConfigError`` for a plan that does not fit the
    trace and for a folder that holds another table, ``SubmissionRejected`` where the cluster refuses the job.
    """
    raise NotImplementedError


def load_table(folder: Path) -> Table:
    """A finished table. Raises ``ConfigError`` naming the file that is missing, corrupt or of another schema."""
    raise NotImplementedError
