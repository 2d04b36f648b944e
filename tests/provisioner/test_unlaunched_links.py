"""A link that its node could not start, as where the prolog fails: no script has run."""

from __future__ import annotations

from dataclasses import replace

from provisioner.test_machine import LIMIT, after, fresh

from mirage.domain.chain import ChainStatus, DoneCondition
from mirage.domain.job import JobId, JobState
from mirage.provisioner.events import LinkEnded, LinkStarted, LinkSubmitted
from mirage.provisioner.machine import plan


def test_links_that_never_began_are_none_of_those_that_have_to_run() -> None:
    record = fresh()
    record = replace(record, chain=replace(record.chain, done=DoneCondition(exit_code=None, links=2)))
    for index in (1, 2, 3):
        at = 100 * index
        record, _ = plan(record, "", at)
        record = after(record, LinkSubmitted(index, JobId(index), at), now=at)
        record = after(record, LinkStarted(index, at, at + LIMIT), now=at)
        record = after(record, LinkEnded(index, at, at + 1, JobState.BOOT_FAIL, 0), now=at + 1)
        assert not record.over
        assert [link.worked for link in record.links] == [False] * index
    assert record.status is ChainStatus.PAUSED
