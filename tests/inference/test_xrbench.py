"""XRBench's published schedule and score, through the simulated system in the published order.

"VR gaming" on one 4K weight-stationary device. The score is 100 x the mean over models of the mean over
frames of 1 / (1 + exp(15 delay)) x (1500 - energy) / 1500, in ms and mJ, times the part that is not dropped (all).
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest
from system_cases import cost_table, request_table, unit_system

from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem
from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.inference.outcome import RequestRunResult
    from mirage.domain.inference import SystemView

LARGEST = 3e-5 + 1e-10
"""Milliseconds; the file has six digits behind the point."""

RUN = "VR_gaming__Single_4K__WS.csv"
SECONDS = {"ES_RITNet": 1.503136e-3, "GE_FBNet_C": 4.222037e-3, "HT_hand_graph_cnn_half": 8.561677e-3}


class Published:
    """Begins requests in a given order, and waits for the next one where it has not come."""

    name, period = "published", 0.0

    def __init__(self, order: list[int]) -> None:
        self.order = order

    def begin(self) -> None:
        self.left = iter(self.order)
        self.next = next(self.left)

    def decide(self, view: SystemView) -> Dispatch:
        rows = np.flatnonzero(view.request == self.next).astype(np.int32)
        if len(rows):
            self.next = next(self.left, -1)
        return Dispatch(rows, np.zeros(len(rows), np.int32))


@pytest.fixture(scope="module")
def frames(shared: Path) -> list[dict[str, str]]:
    path = shared / "yardsticks" / "xrbench" / f"schedule_{RUN}"
    if not path.exists():
        pytest.skip(f"{path} not found")
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return sorted(rows, key=lambda row: float(row["Injection Time (ms)"]))


def column(frames: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in frames])


@pytest.fixture(scope="module")
def outcome(frames: list[dict[str, str]]) -> RequestRunResult:
    energy = {row["Model Name"]: float(row["Energy (mJ)"]) / 1e3 for row in frames}
    costs = cost_table([[[seconds]] for seconds in SECONDS.values()], joules=[[energy[name]] for name in SECONDS])
    requests = request_table(
        [float(row["Injection Time (ms)"]) / 1e3 for row in frames],
        [list(SECONDS).index(row["Model Name"]) for row in frames],
        deadline=[float(row["Deadline Time (ms)"]) / 1e3 for row in frames],
    )
    order = np.argsort(column(frames, "Dispatch Time (ms)"), kind="stable").tolist()
    return SimulatedSystem(requests, unit_system([0]), costs, SharingRules()).play(Published(order))


def test_the_schedule_is_the_published_one(frames: list[dict[str, str]], outcome: RequestRunResult) -> None:
    assert len(frames) == 115
    assert np.abs(outcome.begin * 1e3 - column(frames, "Dispatch Time (ms)")).max() <= LARGEST
    assert np.abs(outcome.end * 1e3 - column(frames, "Completion Time (ms)")).max() <= LARGEST
    assert outcome.figures.all.satisfaction == pytest.approx(107 / 115)


def test_the_score_is_the_published_one(
    shared: Path, frames: list[dict[str, str]], outcome: RequestRunResult
) -> None:
    with (shared / "yardsticks" / "xrbench" / f"summary_{RUN}").open(newline="") as lines:
        summary = {row[0]: row[1:] for row in csv.reader(lines)}
    delay = (outcome.end - outcome.requests.deadline) * 1e3
    in_time = 1.0 / (1.0 + np.exp(15.0 * delay))
    thrift = (1500.0 - outcome.joules * 1e3) / 1500.0
    scores = []
    for row, name in enumerate(SECONDS):
        of = outcome.requests.model == row
        assert in_time[of].mean() == pytest.approx(float(summary[name][0]), abs=1e-6)
        assert thrift[of].mean() == pytest.approx(float(summary[name][1]), abs=1e-6)
        scores.append((in_time[of] * thrift[of]).mean())
    assert 100.0 * np.mean(scores) == pytest.approx(float(summary["Overall Score"][0]), abs=1e-4)
    assert float(summary["Overall Score"][0]) == 86.466141
