"""Log entries about links without their marks, and about jobs that have the IDs of links."""

from __future__ import annotations

from dataclasses import replace

import pytest
from backends.test_cli_links import ID, KNOWN, NOW, OWN16, RUNS, TAG, Accounting, queue, shown

from mirage.backends.cli_links import LinkTracker
from mirage.domain.job import JobId
from mirage.domain.link import LinkIdentity
from mirage.slurm.queuetext import QueueRow


@pytest.mark.parametrize("comment", ["project=42", "", TAG])
def test_links_without_their_marks_are_logged_once_for_each_owner(
    comment: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A job_submit plugin may set comments: what keeps one writer after a crash is gone then."""
    memory = LinkTracker()
    for cycle in range(3):
        found = memory.account(shown(replace(RUNS, tag=comment)), {TAG: ID}, Accounting(), NOW + cycle, KNOWN)
        assert found[TAG].job_id == ID
        assert memory.unmarked == ({TAG} if comment != TAG else frozenset())
    said = [message for message in caplog.messages if "event=mark_missing" in message]
    assert len(said) == (comment != TAG)
    assert all(f"link={TAG} job={ID} comment={comment!r}" in each for each in said)


def test_reused_ids_are_logged_once_for_each_owner(caplog: pytest.LogCaptureFixture) -> None:
    names = {f"mirage:svc{k}:1": JobId(k) for k in range(1, 4)}
    known = {tag: LinkIdentity(tag, "alice", "svc", submit=RUNS.submit) for tag in names}
    jobs = [QueueRow(replace(OWN16, job_id=job_id), completing=False) for job_id in names.values()]
    memory = LinkTracker()
    for cycle in range(5):
        memory.account(queue(*jobs), names, Accounting(), NOW + cycle, known)
        assert memory.unmarked == frozenset(), "another job says nothing of the link's mark"
    (line,) = [message for message in caplog.messages if "job_id_reused" in message]
    assert line == (
        "event=job_id_reused owner=alice links=3 first=mirage:svc1:1 job=1 name='own16' comment='' "
        f"submit={OWN16.submit}"
    )
