"""sbatch's errors before it contacts a controller, and the controller's errors that may pass."""

from __future__ import annotations

import pytest

from mirage.domain.errors import SubmissionRejected
from mirage.slurm import error_messages
from mirage.slurm.error_messages import concerns_others, is_permanent


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('sbatch: fatal: stdin: line 2: Unmatched `"` in [--job-name="x]\n', "InvalidScript"),
        ("sbatch: fatal: stdin: line 2: Unexpected `:` in [: foo]\n", "InvalidScript"),
        ("sbatch: error: Invalid directive found in batch script: foo\n", "InvalidScript"),
        (
            "sbatch: unrecognized option '--nonsense'\nTry \"sbatch --help\" for more information\n",
            "InvalidOption",
        ),
        ("sbatch: option '--nodes' requires an argument\n", "InvalidOption"),
        ("sbatch: option '--re=1' is ambiguous; possibilities: '--reboot' '--requeue'\n", "InvalidOption"),
        ("sbatch: option '--contiguous' doesn't allow an argument\n", "InvalidOption"),
        ('sbatch: error: Invalid numeric value "abc" for --ntasks.\n', "InvalidOption"),
        ("sbatch: error: Maximum node count 2 is less than minimum node count 5\n", "InvalidOption"),
        ("sbatch: error: Bad rlimit name: FOO\nsbatch: error: --propagate=FOO is not valid.\n", "InvalidOption"),
        ("sbatch: error: Cannot specify both --burst-buffer and --bbf\n", "InvalidOption"),
        ('sbatch: error: unrecognized --hint argument "xx", see --hint=help\n', "InvalidOption"),
    ],
)
def test_what_sbatch_itself_does_not_take_is_rejected_for_good(said: str, reason: str) -> None:
    """The output of sbatch 22.05, without a request to a controller; no retry can help."""
    error = error_messages.refusal(said, "sbatch")
    assert isinstance(error, SubmissionRejected)
    assert error.reason == reason
    assert is_permanent(error.reason)


def test_a_spool_that_cannot_be_written_is_a_rejection_that_may_pass() -> None:
    """slurmctld (22.05, ``job_allocate``) takes the job back then: none is made."""
    said = "sbatch: error: Batch job submission failed: I/O error writing script/environment to file\n"
    error = error_messages.refusal(said, "sbatch")
    assert isinstance(error, SubmissionRejected)
    assert not is_permanent(error.reason)
    assert concerns_others(error.reason), "a reason for protected mode"
