"""Replays that are over, as an earlier daemon left them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from instants import HOUR, NOW
from pydantic import TypeAdapter

from mirage.replay.intervals import IntervalEstimate
from mirage.replay.metrics import ALL, PolicyMetrics, ReplayMetrics, Resampling, for_json
from mirage.replay.runs import ReplayJob, ReplayRuns, ReplaySpec, RunState

if TYPE_CHECKING:
    from pathlib import Path

MEANS = {"reactive": (3.1, 0.0), "fixed:6h": (0.9, 2.2), "quantile": (0.6, 1.1), "lookahead": (0.31, 0.92)}
WISH = ReplaySpec(
    "gpu-2026-10.parquet", "hpc1.toml", tuple(MEANS), 4, 24 * HOUR, "2026-10-01", "2026-10-28", 14_400, 600, 2, ""
)


def left_behind(folder: Path) -> ReplayRuns:
    """One that is done, and one that failed; nothing is played here."""
    _leave(folder, ReplayJob("a1b2c3d4e5f6", "alice", WISH, NOW - 9_000, RunState.DONE, NOW - 8_990, NOW - 8_100))
    wrong = "generated:demo:1: no episode starts between 2026-02-01 and 2026-01-01"
    _leave(
        folder,
        ReplayJob("0123456789ab", "bob", WISH, NOW - 5_000, RunState.FAILED, NOW - 4_990, NOW - 4_980, wrong),
    )
    metrics = ReplayMetrics(tuple(MEANS), tuple(map(_row, MEANS)), 162, (), 0, 6, Resampling())
    document = {"notes": [], "metrics": metrics.to_json()}
    (folder / "a1b2c3d4e5f6" / "result.json").write_text(json.dumps(for_json(document)))
    return ReplayRuns(folder, None, lambda wish, place: (), lambda: NOW, 4)


def _leave(folder: Path, run: ReplayJob) -> None:
    (folder / run.run_id).mkdir(parents=True)
    (folder / run.run_id / "run.json").write_bytes(TypeAdapter(ReplayJob).dump_json(run))


def _row(policy: str) -> PolicyMetrics:
    gap, overlap = MEANS[policy]
    return PolicyMetrics(
        policy=policy,
        load=ALL,
        pairs=162,
        interruption_mean=_about(gap),
        interruption_median=_about(gap / 2),
        interruption_p90=_about(3 * gap),
        overlap_mean=_about(overlap),
        distance_mean=_about(gap + overlap),
        uninterrupted_share=_share(1 / (1 + gap)),
        close_share=_share(0.4),
        costs=(),
        reduction=None if policy == "reactive" else _share(1 - gap / 3.1),
        regret=None,
        gap_closed=None,
    )


def _share(value: float) -> IntervalEstimate:
    return IntervalEstimate(value, 0.85 * value, min(1.0, 1.15 * value))


def _about(value: float) -> IntervalEstimate:
    return IntervalEstimate(value, 0.85 * value, 1.15 * value)
