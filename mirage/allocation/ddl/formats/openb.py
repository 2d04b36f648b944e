"""Alibaba's openb (clusterdata ``cluster-trace-gpu-v2023``): pods that need parts of a GPU, one, or several.

CPUs are counted in thousandths, in the pool and in the tasks alike: pods ask for 3152 of them. A pod's
GPUs are on one node. ``gpu_spec`` lists the accepted models of GPU, joined by ``|``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.result import TaskTrace
from mirage.allocation.ddl.formats.rows import read_sheet
from mirage.allocation.ddl.formats.table import task_table
from mirage.domain.pool import Pool
from mirage.domain.task import ANY_KIND

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.formats.rows import Row

_THOUSAND = 1000
_MOST_DEVICES = 1024
"""Most devices on one node: a typing error must not fill the memory."""


def read_openb(pods: str | Path, nodes: str | Path) -> TaskTrace:
    """All pods as tasks; those that were never scheduled have no run time. Raises ``TraceError``."""
    pool = read_openb_nodes(nodes)
    sheet = read_sheet(pods)
    sheet.need("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time")
    sheet.need("deletion_time", "scheduled_time", "qos")
    rows = sheet.rows
    created = np.array([row.number("creation_time") for row in rows])
    tasks = task_table(
        sheet.names("name"),
        submit=created - created.min(),
        devices=[row.whole("num_gpu") for row in rows],
        share=[_share(row) for row in rows],
        kinds=[_kinds(row, pool.kinds) for row in rows],
        max_nodes=1,
        cpus=[row.whole("cpu_milli") for row in rows],
        memory_mb=[row.whole("memory_mib") for row in rows],
        work=[_work(row) for row in rows],
        tenant=[row.text("qos") for row in rows],
    )
    return TaskTrace(str(pods), tasks, pool, len(rows))


def read_openb_nodes(path: str | Path) -> Pool:
    """The nodes with GPUs; other nodes have no devices. Prices are unknown: each device costs 1."""
    sheet = read_sheet(path)
    sheet.need("sn", "cpu_milli", "memory_mib", "gpu", "model")
    rows = sheet.rows
    held = [row.whole("gpu", most=_MOST_DEVICES) for row in rows]
    models = [row.text("model") for row in rows]
    kinds = tuple(dict.fromkeys(model for model, count in zip(models, held, strict=True) if count))
    if len(kinds) > 64:
        raise rows[0].fault("model", f"{len(kinds)} kinds of GPU (at most 64)")
    device_node = np.repeat(np.arange(len(rows), dtype=np.int32), held)
    kind = [kinds.index(model) if count else 0 for model, count in zip(models, held, strict=True)]
    return Pool(
        node_names=sheet.names("sn"),
        cpus=np.array([row.whole("cpu_milli") for row in rows], dtype=np.int32),
        memory_mb=np.array([row.whole("memory_mib") for row in rows], dtype=np.int64),
        switch=np.zeros(len(rows), dtype=np.int32),
        device_node=device_node,
        device_index=np.concatenate([np.arange(count, dtype=np.int32) for count in held]),
        device_kind=np.repeat(np.array(kind, dtype=np.int32), held),
        island=device_node.copy(),
        kinds=kinds,
        price=np.ones(len(kinds)),
    )


def _share(row: Row) -> float:
    milli = row.whole("gpu_milli", most=_THOUSAND)
    count = row.whole("num_gpu")
    if count and not milli:
        raise row.fault("gpu_milli", f"0 of each of {count} GPUs")
    if count > 1 and milli != _THOUSAND:
        raise row.fault("gpu_milli", f"{milli} of each of {count} GPUs; only one GPU can be shared")
    return milli / _THOUSAND if count else 1.0


def _kinds(row: Row, known: tuple[str, ...]) -> int:
    """A mask; kinds that the pool does not have are ignored, but it must have one of them."""
    wanted = [kind for kind in row.text("gpu_spec").split("|") if kind]
    if not wanted:
        return int(ANY_KIND)
    mask = sum(1 << known.index(kind) for kind in set(wanted) if kind in known)
    if not mask:
        raise row.fault(
            "gpu_spec", f"no node has a GPU of {row.text('gpu_spec')!r} (available: {', '.join(known)})"
        )
    return mask


def _work(row: Row) -> float:
    scheduled = row.number("scheduled_time", default=np.nan)
    return row.number("deletion_time") - scheduled
