"""Whether a job may have more nodes at its next start: as a real Slurm 22.05 has placed such jobs."""

from __future__ import annotations

import pytest

from mirage.domain.job import BatchScript, JobRequest
from mirage.slurm.jobrequest import may_spread


@pytest.mark.parametrize(
    ("options", "spreads"),
    [
        ("--ntasks=33", True),
        ("--ntasks=4 --cpus-per-task=10", True),
        ("--gpus=3", True),
        ("--ntasks=3 --gpus-per-task=1", True),
        ("--nodes=1-2 --ntasks=33", True),
        ("--nodes=1k --ntasks=33", True),
        ("--ntasks=1 --gpus=3", False),
        ("--cpus-per-task=33", False),
        ("--nodes=1 --ntasks=33", False),
        ("--nodes=2-2 --ntasks=33", False),
        ("--nodes=1 --gpus=3", False),
        ("--ntasks-per-node=33", False),
        ("--gpus-per-node=3", False),
        ("--gres=gpu:3", False),
        ("--mincpus=33", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("in_script", [False, True])
def test_number_of_nodes_is_free_unless_an_option_sets_it(options: str, spreads: bool, in_script: bool) -> None:
    words = tuple(options.split())
    text = "".join(f"#SBATCH {word}\n" for word in words) if in_script else ""
    batch = BatchScript(f"#!/bin/sh\n{text}sleep 1\n", () if in_script else words)
    assert may_spread(JobRequest("job", "alice", 60, batch=batch)) is spreads


def test_number_of_nodes_that_the_request_says_is_passed_on() -> None:
    batch = BatchScript("#!/bin/sh\n", ("--cpus-per-task=33",))
    assert not may_spread(JobRequest("job", "alice", 60, nodes=2, batch=batch))


def test_options_that_cannot_be_read_fix_nothing() -> None:
    assert may_spread(JobRequest("job", "alice", 60, batch=BatchScript("#!/bin/sh\n#SBATCH --nodes='1\n")))
