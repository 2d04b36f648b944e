"""Protected mode: what gives cause for it, what ends it, and when the next try may go out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, chain
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.chain import ChainRecord, ChainStatus
from mirage.domain.job import ABSENT, JobId, JobState
from mirage.provisioner import commands, machine
from mirage.provisioner.events import (
    LinkEnded,
    LinkPlanned,
    LinkRejected,
    LinkStarted,
    LinkSubmitted,
    RefusalsForgiven,
    ResumeAsked,
)
from mirage.provisioner.limits import Limits
from mirage.provisioner.rejections import FIRST_TRY, LONGEST_WAIT, Protection, protection
from mirage.provisioner.tally import Tally

THREE = Limits(protect_after=3)


def worked(name: str, owner: str = "alice", at: int = 0) -> ChainRecord:
    """A chain with one link that Slurm took at ``at``, and which runs."""
    events = (LinkPlanned("first"), LinkSubmitted(1, JobId(7), at), LinkStarted(1, at, at + HOUR))
    return machine.apply_all(ChainRecord(replace(chain(name=name), owner=owner)), events, at)


def refused(record: ChainRecord, *times: int, reason: str = "no") -> ChainRecord:
    for time in times:
        event = LinkRejected(record.next_index, reason, 60)
        record = machine.apply(machine.apply(record, LinkPlanned("next"), time), event, time)
    return record


def protection_of(records: list[ChainRecord], limits: Limits) -> Protection | None:
    return protection(Tally.of(records, 0), limits)


def test_three_chains_of_two_owners_refused_in_a_row_are_cause_enough() -> None:
    records = [refused(worked("a"), 100), refused(worked("b", "bob"), 200), worked("c")]
    assert protection_of(records, THREE) is None
    protected = protection_of([*records[:2], refused(records[2], 300)], THREE)
    assert protected is not None
    assert (protected.since, protected.chains) == (100, 3)
    assert protected.next_try == 300 + FIRST_TRY


def test_one_submission_accepted_ends_it() -> None:
    records = [refused(worked(name, name), 100) for name in "abc"]
    assert protection_of(records, THREE) is not None
    taken = machine.apply_all(records[0], [LinkPlanned("a try"), LinkSubmitted(2, JobId(9), 500)], 500)
    assert protection_of([taken, *records[1:]], THREE) is None
    assert taken.refused == taken.refused_since == ABSENT


def test_chains_that_never_worked_are_their_owners_mistake() -> None:
    strangers = [refused(ChainRecord(replace(chain(name=name), owner=name)), 100, 200) for name in "abcd"]
    assert protection_of([*strangers, worked("good")], THREE) is None


def test_what_befalls_one_owner_among_several_is_theirs() -> None:
    alices = [refused(worked(name), 100) for name in "abcd"]
    assert protection_of([*alices, worked("bobs", "bob")], THREE) is None
    assert protection_of(alices, THREE) is not None, "there is no other owner"


def test_the_longer_it_lasts_the_rarer_the_tries() -> None:
    records = [refused(worked(name, name), 100) for name in "abc"]
    waits = []
    for _ in range(8):
        protected = protection_of(records, THREE)
        assert protected is not None
        waits.append(protected.next_try - max(record.refused for record in records))
        records[0] = refused(records[0], protected.next_try)
    assert waits[:4] == [300, 300, 600, 1_200]
    assert waits[-1] == LONGEST_WAIT


def test_a_try_without_an_answer_counts_as_one() -> None:
    records = [refused(worked(name, name), 100) for name in "abc"]
    records.append(machine.apply(worked("d", "d"), LinkPlanned("a try"), 400))
    protected = protection_of(records, THREE)
    assert protected is not None
    assert protected.next_try == 400 + FIRST_TRY


def test_who_could_not_be_asked_in_their_name_is_no_cause() -> None:
    def unable(record: ChainRecord) -> ChainRecord:
        event = LinkRejected(record.next_index, "no agent", 0, counts=False, by_slurm=False)
        return machine.apply(machine.apply(record, LinkPlanned("next"), 100), event, 100)

    assert protection_of([unable(worked(name, name)) for name in "abcd"], THREE) is None


def test_an_administrator_ends_it_and_chains_try_at_once() -> None:
    records = [refused(worked(name, name), 100) for name in "abc"] + [worked("fine")]
    free = commands.forgiven(records, 150)
    assert len(free) == 3
    assert protection_of([*free, records[3]], THREE) is None
    assert {(record.refusals, record.not_before) for record in free} == {(0, 150)}
    assert machine.apply(records[3], RefusalsForgiven(), 150) == records[3]


times = st.integers(0, 5_000)
plain = st.builds(
    lambda name, owner, at, refusals: refused(worked(name, owner, at), *sorted(at + r for r in refusals)),
    st.text("abcdefgh", min_size=1),
    st.sampled_from(["alice", "bob", "carol"]),
    times,
    st.lists(times, max_size=3),
)
several = st.lists(plain, max_size=8, unique_by=lambda record: record.chain.chain_id)


@given(several, st.integers(0, 4))
def test_it_follows_from_refusals_after_the_last_acceptance(records: list[ChainRecord], count: int) -> None:
    protected = protection_of(records, Limits(protect_after=count))
    accepted = max((link.planned for record in records for link in record.links), default=ABSENT)
    late = [record for record in records if record.refused > accepted]
    owners = {record.chain.owner for record in late}
    alone = len({record.chain.owner for record in records}) == 1
    assert (protected is not None) == (0 < count <= len(late) and (alone or len(owners) > 1))
    if protected is not None:
        last = max(record.refused for record in records)
        assert accepted <= protected.since <= last
        assert FIRST_TRY <= protected.next_try - last <= LONGEST_WAIT


@given(several, plain)
def test_a_further_refusal_never_ends_it(records: list[ChainRecord], further: ChainRecord) -> None:
    if protection_of(records, THREE) is None or further.chain.chain_id in {r.chain.chain_id for r in records}:
        return
    last = max(record.refused for record in records)
    assert protection_of([*records, refused(worked("zz", further.chain.owner), last + 1)], THREE) is not None


# Links that fail as they start


def failing(record: ChainRecord, after: int, state: JobState = JobState.NODE_FAIL) -> ChainRecord:
    at, index = record.links[-1].end if record.links else 0, record.next_index
    events = (
        LinkPlanned("go on"),
        LinkSubmitted(index, JobId(index), at),
        LinkStarted(index, at, at + 48 * HOUR),
        LinkEnded(index, at, at + after, state, 1),
    )
    return machine.apply_all(record, events, at + after)


@pytest.mark.parametrize(
    ("after", "state", "status"),
    [
        (60, JobState.NODE_FAIL, ChainStatus.PAUSED),
        (61, JobState.NODE_FAIL, ChainStatus.ACTIVE),
        (5, JobState.PREEMPTED, ChainStatus.ACTIVE),
    ],
)
def test_three_links_that_fail_at_once_pause_a_chain_that_would_always_go_on(
    after: int, state: JobState, status: ChainStatus
) -> None:
    record = ChainRecord(chain())
    for _ in range(2):
        record = failing(record, after, state)
        assert record.status is ChainStatus.ACTIVE
    assert failing(record, after, state).status is status


def test_a_chain_that_was_paused_so_gets_three_more_links() -> None:
    record = ChainRecord(chain())
    for _ in range(3):
        record = failing(record, 5)
    assert "within 60 s of their start" in record.reason
    record = machine.apply(record, ResumeAsked(), 100)
    record = failing(failing(record, 5), 5)
    assert record.status is ChainStatus.ACTIVE
    assert failing(record, 5).status is ChainStatus.PAUSED


@pytest.mark.parametrize(
    "reason",
    [
        "AssocMaxSubmitJobLimit",
        "QOSMaxSubmitJobPerUserLimit: user",
        "PartitionTimeLimit: too long",
        "PartitionDown",
    ],
)
def test_limits_and_partitions_concern_those_alone_who_ask_for_them(reason: str) -> None:
    records = [refused(worked(name, name), 100, reason=reason) for name in "abcd"]
    assert protection_of(records, THREE) is None
    lost = [refused(worked(name, name), 100, reason="InvalidAccount: no such account") for name in "abcd"]
    assert protection_of(lost, THREE) is not None, "Slurm may have lost its accounting"


def test_only_chains_that_were_refused_are_held_back() -> None:
    records = [*(refused(worked(name, name), 100) for name in "abc"), worked("d", "d")]
    protected = protection_of(records, THREE)
    assert protected is not None
    assert [protected.next_try_of(record) for record in records] == [protected.next_try] * 3 + [0]
