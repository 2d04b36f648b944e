"""The chains of the demo: four of different kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.chain import Chain, ChainId, DoneCondition, Handover, HandoverPolicy, Steering
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.domain.objective import Aim, AimKind

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOUR = 3_600
_FOR_EVER = DoneCondition(exit_code=None)


def demo_chains(owner: str, directory: str) -> Iterator[Chain]:
    """What somebody on a cluster of 16 GPU and 4 NPU nodes might run."""

    def request(name: str, partition: str, nodes: int, hours: int, gres: tuple[str, int]) -> JobRequest:
        batch = BatchScript(f"#!/bin/bash\nsrun {name}\n", directory=directory)
        return JobRequest(
            name,
            owner,
            hours * _HOUR,
            nodes,
            partition=partition,
            gres_per_node=(gres,),
            exclusive=True,
            batch=batch,
        )

    def chain(request: JobRequest, **wanted: object) -> Chain:
        return Chain(ChainId(request.name), request.name, owner, request, _FOR_EVER, **wanted)  # type: ignore[arg-type]

    gpus, npus = ("gpu:a100", 4), ("npu", 8)
    yield chain(  # submitted as its predecessor starts, bound to its nodes until the end
        request("protein-folding", "npu", 2, 8, npus), steering=Steering.PIN, lead=0
    )
    yield chain(  # saves when told to, and makes way for its successor: one writer only
        request("train-llm", "gpu", 1, 24, gpus),
        handover=Handover(HandoverPolicy.ON_START, WarnSignal("USR1", 120)),
    )
    yield chain(  # two servers for a while, so that there is always one that answers
        request("chat-service", "gpu", 1, 12, gpus),
        handover=Handover(HandoverPolicy.WHEN_READY, WarnSignal("TERM", 60), max_overlap=_HOUR // 2),
        aim=Aim(AimKind.NO_INTERRUPTION, 0.9),
    )
    yield chain(  # more than there is: Slurm refuses it, and it is paused
        request("far-too-large", "gpu", 40, 12, gpus)
    )
