"""A job that has nodes which boot, with power saving, in a cloud or after ``--reboot``."""

from __future__ import annotations

import pytest
from test_queue_text import only

from mirage.domain.job import ABSENT, JobState


@pytest.mark.parametrize("state", ["CONFIGURING", "POWER_UP_NODE"])
def test_job_whose_nodes_boot_has_not_started(state: str) -> None:
    """Slurm moves its start to the end of the boot, which takes minutes; its predecessor is needed until then."""
    job = only(State=state, StartTime="1795275140", EndTime="1795275150").job
    assert (job.state, job.start) == (JobState.RUNNING, ABSENT)
