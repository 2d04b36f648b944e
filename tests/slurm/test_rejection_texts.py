"""The text of a rejection."""

from __future__ import annotations

from mirage.domain.errors import SubmissionRejected
from mirage.slurm import error_messages


def test_a_rejection_names_its_reason_once() -> None:
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
    text = f"{limit}sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    error = error_messages.refusal(text, "sbatch")
    assert isinstance(error, SubmissionRejected)
    assert error.reason == "QOSMaxSubmitJobPerUserLimit"
    assert str(error).count(error.reason) == 1
