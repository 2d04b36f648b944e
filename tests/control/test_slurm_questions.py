"""The number of Slurm queries in a cycle, whatever the number of chains and the predictors' inputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fake_slurm.fake import FakeSlurm
from fakes import HOUR, chain

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.backends.simulated import SimulatedCluster
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.startplans import PlanBudget
from mirage.control.stores import MemoryJournal, MemoryStore, NoFiles
from mirage.domain.chain import ChainRecord
from mirage.domain.decision import WaitForecast
from mirage.domain.journal import EntryKind
from mirage.features.schema import encode, schema
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.decision import Observation

CHAINS = 31
V2 = schema("v2")


@dataclass(frozen=True)
class Model:
    """Takes what a trained model takes."""

    name: str = "model"
    wants = V2.wants

    def predict(self, observation: Observation) -> WaitForecast:
        encode(V2, observation)
        return WaitForecast.point(observation.time)


def records(*, alike: bool) -> list[ChainRecord]:
    made = []
    for number in range(CHAINS):
        one = chain((40 if alike else 4 + number) * HOUR, name=f"c{number}")
        request = replace(one.request, partition="v100", cpus_per_node=1)
        made.append(ChainRecord(replace(one, request=request)))
    return made


def questions(folder: Path, *, alike: bool, cycles: int) -> tuple[list[Counter[str]], MemoryJournal]:
    """The queries of each cycle after all first links run."""
    reactive, journal = build_predictor("reactive"), MemoryJournal()
    with FakeSlurm(folder) as slurm:
        commands = CommandRunner(slurm.environment("alice"))
        actuator, simulated = CliActuator(commands, "alice"), SimulatedCluster(slurm.simulation)
        store = MemoryStore(*records(alike=alike), journal=journal)
        cluster = CliCluster(commands, slurm)
        outside = LoopDependencies(
            cluster, actuator, actuator, simulated, slurm, store, journal, NoFiles(), standings=simulated
        )
        guards = Guards(
            PredictorGuard(build_predictor("slurm"), reactive), shadows=(PredictorGuard(Model(), reactive),)
        )
        loop = ControlLoop(
            outside, guards, LoopSettings(limits=Limits(submissions_per_hour=0), plans=PlanBudget())
        )
        loop.cycle()
        slurm.advance(600)
        loop.cycle()
        found = []
        for _ in range(cycles):
            slurm.advance(60)
            slurm.calls.clear()
            loop.cycle()
            tests = sum("--test-only" in call.arguments for call in slurm.calls)
            found.append(Counter(call.command for call in slurm.calls) + Counter({"test-only": tests}))
        assert sum(link.running for record in store.load() for link in record.links) == CHAINS
    return found, journal


def test_31_classes_cost_one_plan_a_cycle(tmp_path: Path) -> None:
    found, journal = questions(tmp_path, alike=False, cycles=4)
    for cycle in found:
        assert cycle == Counter({"squeue": 1, "sinfo": 1, "sbatch": 1, "test-only": 1})
    troubles = [entry.text for entry in journal.entries if entry.kind is EntryKind.TROUBLE]
    assert any("v2: Slurm has not been queried for its plan yet" in text for text in troubles)


def test_31_chains_of_one_class_cost_one_plan_in_ten_minutes(tmp_path: Path) -> None:
    found, journal = questions(tmp_path, alike=True, cycles=10)
    assert sum(cycle["test-only"] for cycle in found) == 1
    assert not [entry.text for entry in journal.entries if entry.kind is EntryKind.TROUBLE]
