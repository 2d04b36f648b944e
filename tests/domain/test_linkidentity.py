"""Which job is a link's, where another job may have been given its ID."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.link import LinkIdentity, is_link, is_mark_of, is_tag

TAG = "mirage:svc:5"
JOB = Job(JobId(16), "svc", "alice", "cpu", 1, 3_600, JobState.RUNNING, 1_000, 1_100, 4_700)
KNOWN = LinkIdentity(TAG, "alice", "svc", "cpu", submit=1_000, sent=1_000)
UNSEEN = replace(KNOWN, submit=ABSENT)


@pytest.mark.parametrize("link", [KNOWN, UNSEEN, LinkIdentity(TAG)], ids=["known", "unseen", "tag alone"])
@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        (TAG, True),
        ("mirage:svc:4", True),  # its job was requeued, and is the next link now
        ("mirage:svc:6", False),
        ("mirage:svc:10", False),
        ("mirage:svc:" + "9" * 5_000, False),
        ("mirage:other:5", False),
        ("mirage:svc.other:5", False),
    ],
)
def test_identity_tag_decides_whatever_else_is_known(link: LinkIdentity, comment: str, expected: bool) -> None:
    assert is_link(replace(JOB, tag=comment), link) is expected


@pytest.mark.parametrize("comment", ["", "mine: do not touch", "mirage:svc", "mirage:svc:5 ", "x mirage:other:1"])
def test_identity_without_a_tag_the_submit_time_decides(comment: str) -> None:
    job = replace(JOB, tag=comment)
    assert is_link(job, KNOWN)
    assert is_link(replace(job, name="renamed", partition="gpu"), KNOWN), "its owner may change these, too"
    assert not is_link(replace(job, name="own16", submit=1_001), KNOWN)
    assert not is_link(replace(job, submit=999), KNOWN), "no run of a job is older than the one before"


def test_identity_requeued_job_has_name_and_partition_of_its_link() -> None:
    requeued = replace(JOB, submit=2_000)
    assert is_link(requeued, KNOWN)
    assert not is_link(replace(requeued, name="own16"), KNOWN)
    assert not is_link(replace(requeued, partition="gpu"), KNOWN)
    assert is_link(replace(requeued, partition="gpu"), replace(KNOWN, partition="cpu,gpu"))
    assert is_link(replace(requeued, partition="gpu,cpu"), KNOWN)
    assert is_link(replace(requeued, partition="gpu"), replace(KNOWN, partition=""))


def test_identity_of_unseen_link_needs_its_name_and_no_older_job() -> None:
    day = 86_400
    unseen = replace(UNSEEN, sent=10 * day)
    assert is_link(replace(JOB, submit=10 * day - 1_800), unseen), "clocks differ"
    assert not is_link(replace(JOB, submit=9 * day), unseen)
    assert not is_link(replace(JOB, submit=10 * day, name="own16"), unseen)
    assert is_link(replace(JOB, submit=9 * day), replace(unseen, sent=ABSENT))


def test_identity_other_owner_is_never_the_link() -> None:
    for comment in ("", TAG):
        assert not is_link(replace(JOB, user="mallory", tag=comment), KNOWN)
        assert is_link(replace(JOB, user="mallory", tag=comment), LinkIdentity(TAG)), "its owner is not known"


def test_identity_long_name_is_compared_as_far_as_accounting_keeps_it() -> None:
    name = "n" * 300
    assert is_link(replace(JOB, submit=2_000, name=name[:255]), replace(KNOWN, name=name))


@pytest.mark.parametrize(
    "text", ["", "mirage:", "mirage:svc", "mirage::1", "mirage:svc:", "mirage:svc:1\n", "Mirage:svc:1"]
)
def test_tag_of_another_form_is_none(text: str) -> None:
    assert not is_tag(text)
    assert not is_mark_of(text, TAG)
    assert not is_mark_of(TAG, text)
