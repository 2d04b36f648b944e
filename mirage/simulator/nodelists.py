"""The nodes that a job must have (``--nodelist``), checked as slurmctld checks them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import BadSpelling, SubmissionRejected
from mirage.simulator import encode
from mirage.slurm import hostlist

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest
    from mirage.simulator.model import Model

Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]


def nodes_listed(model: Model, request: JobRequest) -> Words:
    """The nodes that ``request`` lists, as a set; empty where it lists none.

    Raises ``SubmissionRejected`` in Slurm's words for nodes that do not exist, that the job may not use, or that
    are more than it asks for.
    """
    if not request.node_list:
        return np.zeros(model.word_count, dtype=np.uint64)
    mask = np.zeros(len(model.node_names), dtype=np.bool_)
    mask[_numbers(model, request.node_list)] = True
    if mask.any():
        _check(model, request, mask)
    return model.words(mask)


def _numbers(model: Model, text: str) -> list[int]:
    try:
        names = hostlist.expand(text)
        return [model.node_index[name] for name in names]
    except BadSpelling as fault:
        raise SubmissionRejected("ReqNodeNotAvail", f"Invalid node name specified: {fault}") from None
    except KeyError as unknown:
        raise SubmissionRejected(
            "ReqNodeNotAvail", f"Invalid node name specified: there is no node {unknown.args[0]}"
        ) from None


def _check(model: Model, request: JobRequest, mask: Mask) -> None:
    shape = encode.request_shape(model, request)
    needs = encode.fit(model, shape).per_node
    _refuse(
        model,
        mask & ~model.members[shape.partition],
        "ReqNodeNotAvail",
        f"Requested nodes not in this partition ({model.cluster.partitions[shape.partition].name})",
    )
    hosts = encode.hosts(model, shape, needs)
    _refuse(model, mask & ~hosts, "BadConstraints", "Requested node configuration is not available")
    for reservation in model.cluster.reservations:
        if reservation.name == request.reservation:
            outside = mask & ~np.isin(np.array(model.node_names), reservation.nodes)
            _refuse(model, outside, "BadConstraints", "Required nodes outside of the reservation")
    if mask.sum() > request.nodes:
        raise SubmissionRejected(
            "PartitionNodeLimit",
            f"Node count specification invalid: {mask.sum()} nodes listed, {request.nodes} asked",
        )


def _refuse(model: Model, wrong: Mask, reason: str, words: str) -> None:
    if wrong.any():
        names = [model.node_names[node] for node in np.flatnonzero(wrong)]
        raise SubmissionRejected(reason, f"{words}: {hostlist.fold(names)}")
