"""Whole nodes in slurmrestd's format, and what ``scontrol`` showed of the same jobs, on each recorded release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mirage.slurm.node_text import has_whole_nodes
from mirage.slurm.rest.queue import why_shared

ASSETS = Path(__file__).parents[1] / "assets"
RECORDED = sorted(ASSETS.glob("*/rest/*/jobs.json"))
SILENT = ("v0.0.45",)
"""Say nothing of it; no link is pinned then."""


def told_by_scontrol(release: str) -> dict[int, bool]:
    """Jobs, and whether each has its nodes alone."""
    text = (ASSETS / release / "scontrol.jobs-oneline.epoch.txt").read_text(encoding="utf-8", errors="replace")
    jobs = {int(found[1]): line for line in text.splitlines() if (found := re.match(r"JobId=(\d+)", line))}
    return {job_id: has_whole_nodes(line) for job_id, line in jobs.items()}


@pytest.mark.parametrize("release", sorted({path.parts[-4] for path in RECORDED}))
def test_the_job_that_asked_for_whole_nodes_has_them_and_a_small_one_has_not(release: str) -> None:
    """One of the recorded jobs is named for its ``--exclusive``; the small ones asked for a CPU each."""
    text = (ASSETS / release / "scontrol.jobs-oneline.epoch.txt").read_text(encoding="utf-8", errors="replace")
    named = {found[1]: line for line in text.splitlines() if (found := re.search(r"JobName=(\S+)", line))}
    assert has_whole_nodes(named["running-whole-node"])
    for small in ("running", "failed", "timeout"):
        assert not has_whole_nodes(named[small])


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: f"{path.parts[-4]} {path.parts[-2]}")
def test_a_job_has_its_nodes_alone_where_scontrol_says_so(recorded: Path) -> None:
    told = told_by_scontrol(recorded.parts[-4])
    compared = []
    for record in json.loads(recorded.read_text(encoding="utf-8"))["jobs"]:
        if record["job_id"] in told and "RUNNING" in record["job_state"]:  # of others Slurm forgets it
            alone = why_shared(record | {"requeue": False}) == ""
            assert alone is (told[record["job_id"]] and recorded.parts[-2] not in SILENT), record["job_id"]
            compared.append(alone)
    assert len(compared) > 5
    assert any(compared) is (recorded.parts[-2] not in SILENT), "one of the recorded jobs has whole nodes"
    assert not all(compared)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: f"{path.parts[-4]} {path.parts[-2]}")
def test_a_job_that_slurm_may_requeue_is_told(recorded: Path) -> None:
    for record in json.loads(recorded.read_text(encoding="utf-8"))["jobs"]:
        assert why_shared(record | {"requeue": True})
        record.pop("requeue", None)
        assert why_shared(record)


def test_what_is_not_told_proves_nothing() -> None:
    assert why_shared({"requeue": False})
    assert why_shared({"requeue": False, "shared": ""})
