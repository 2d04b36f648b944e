"""Chains of the demo: of different kinds, two of them also without Mirage for comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import Chain, ChainId, DoneCondition, Handover, HandoverPolicy, Steering
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.domain.objective import Aim, AimKind

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOUR = 3_600
_FOR_EVER = DoneCondition(exit_code=None)


def demo_chains(owner: str, directory: str) -> Iterator[Chain]:
    """Typical chains of a user on a cluster of 16 GPU and 4 NPU nodes."""

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
        """Return the chain that ``mirage submit`` creates by default."""
        wanted = {"steering": Steering.AUTO} | wanted
        return Chain(ChainId(request.name), request.name, owner, request, _FOR_EVER, **wanted)  # type: ignore[arg-type]

    gpus, npus = ("gpu:a100", 4), ("npu", 8)
    training = request("train-llm", "gpu", 1, 24, gpus)
    serving = request("chat-service", "gpu", 1, 24, gpus)
    yield chain(request("protein-folding", "npu", 2, 8, npus))
    yield chain(replace(training, warn=WarnSignal("USR1", 120, batch_only=True)))  # saves before its time limit
    yield chain(  # two servers overlap, so that one always replies
        serving,
        handover=Handover(HandoverPolicy.WHEN_READY, WarnSignal("TERM", 60), max_overlap=_HOUR // 2),
        aim=Aim(AimKind.NO_INTERRUPTION, 0.9),
    )
    for each in (training, serving):  # the same without Mirage
        yield chain(replace(each, name=f"{each.name}-by-hand"), steering=Steering.OFF, predictor="reactive")
    yield chain(  # too large: Slurm rejects it, and Mirage pauses it
        request("far-too-large", "gpu", 40, 12, gpus)
    )
