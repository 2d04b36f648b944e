"""On a real Slurm, the signal to exit for a successor reaches all that Slurm's warning of the limit reaches."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

import pytest
from test_one_writer_on_slurm import kept

from mirage.domain.chain import Chain, ChainId, DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.job import BatchScript, JobRequest, JobState, WarnSignal

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

STEP = """#!/bin/bash
trap 'kill $!; echo "saved $MIRAGE_LINK" >>LOG; exit 0' TERM
sleep infinity &
wait $!
"""
"""Saves what it has, when it is warned."""
SCRIPTS = {
    "exec": ("#!/bin/bash\nexec srun --quiet bash STEP\n", WarnSignal("TERM", 120)),
    "more": ('#!/bin/bash\nsrun --quiet bash STEP\necho "more $MIRAGE_LINK" >>LOG\n', WarnSignal("TERM", 120)),
    "shell": (STEP, WarnSignal("TERM", 120, batch_only=True)),
    "alone": (STEP, None),
}
"""The signal reaches all: jobs whose steps are warned, whose batch shell is, and one without a warning."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_link_that_makes_way_saves_and_ends_well(name: str, testbed: Testbed, tmp_path: Path) -> None:
    text, warn = SCRIPTS[name]
    log, step = tmp_path / "log", tmp_path / "step.sh"
    step.write_text(STEP.replace("LOG", str(log)))
    text = text.replace("STEP", str(step)).replace("LOG", str(log))
    batch = BatchScript(text, ("--output=/dev/null",), (("PATH", os.environ["PATH"]),), str(tmp_path))
    request = JobRequest(name, "", 20 * 60, partition="cpu", warn=warn, batch=batch)
    way = WarnSignal("TERM", 300, batch_only=warn is not None and warn.batch_only)
    chain = Chain(
        ChainId(name),
        name,
        getpass.getuser(),
        request,
        DoneCondition(exit_code=None, links=2),
        handover=HandoverSettings(HandoverPolicy.ON_START, way),
        predictor="fixed:10m",
    )
    record = kept(testbed, [chain], tmp_path)[name]
    first, second = record.links
    assert (first.job_state, first.exit_code) == (JobState.COMPLETED, 0)
    assert first.is_retired
    assert first.end > second.start
    assert first.end - first.start < request.limit - 120, "Mirage's signal ended it, not the warning of its limit"
    said = log.read_text().splitlines()
    assert said[0] == "saved 1"
    assert ("more 1" in said) is (name == "more")
