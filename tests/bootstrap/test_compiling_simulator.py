"""A simulated cluster that a daemon acts on compiles nothing in the loop: a cycle would take minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.bootstrap.backends import build_world
from mirage.config.model import Config
from mirage.domain.job import JobChange, JobRequest
from mirage.simulator.kernel import engine, operations

if TYPE_CHECKING:
    from pathlib import Path


def compiled() -> dict[str, list[Any]]:
    functions = [*vars(engine).values(), *vars(operations).values()]
    return {each.__name__: list(each.signatures) for each in functions if hasattr(each, "signatures")}


def test_simulated_cluster_compiles_nothing_when_first_asked(tmp_path: Path) -> None:
    cluster = {"backend": "simulated", "simulated": {"cluster": "demo"}}
    world = build_world(Config.model_validate({"service": {"state": str(tmp_path)}, "cluster": cluster}))
    before = compiled()
    assert before["planned_start"]
    request = JobRequest("train", "ada", 3_600, partition="npu", tag="a", held=True)
    world.estimator.estimate_start(request)
    job = world.actuator.submit(request)
    for change in (JobChange(nice=5), JobChange(node_list="npu02"), JobChange(held=False)):
        world.actuator.update(job, "ada", change)
    world.cluster.snapshot()
    world.actuator.cancel(job, "ada")
    assert compiled() == before
