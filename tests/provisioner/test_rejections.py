"""Which rejections pause a chain, and how long it waits between two tries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import chain

from mirage.domain.chain import ChainRecord, ChainStatus
from mirage.domain.job import ABSENT, JobId
from mirage.provisioner import machine
from mirage.provisioner.events import LinkPlanned, LinkRejected, LinkSubmitted, ResumeAsked
from mirage.provisioner.limits import Limits
from mirage.provisioner.rejections import LONGEST_PAUSE, pauses, rejection_text, retry_pause

LIMITS = Limits(pause_after_refusals=3)
FRESH = ChainRecord(chain())
ACCEPTED = machine.apply_all(FRESH, (LinkPlanned("first"), LinkSubmitted(1, JobId(7), 0)), 0)


def rejected(record: ChainRecord, now: int, *, permanent: bool, pause: bool = False) -> ChainRecord:
    event = LinkRejected(record.next_index, "no such thing", 60, permanent=permanent, pauses=pause)
    record = replace(record, links=record.links) if record.waiting is None else _running(record)
    return machine.apply_all(record, (LinkPlanned("next"), event), now)


def _running(record: ChainRecord) -> ChainRecord:
    from mirage.provisioner.events import LinkStarted

    return machine.apply(record, LinkStarted(1, 0, 3_600), 0)


def test_retry_pause_doubles_and_is_bounded() -> None:
    waits = [retry_pause(n, Limits(refusal_backoff=300)) for n in range(1, 40)]
    assert waits[:3] == [300, 600, LONGEST_PAUSE]
    assert set(waits[2:]) == {LONGEST_PAUSE}
    assert retry_pause(5, Limits(refusal_backoff=7_200)) == 7_200


@pytest.mark.parametrize(
    ("record", "limits", "tries"),
    [(FRESH, LIMITS, 1), (ACCEPTED, LIMITS, 3), (ACCEPTED, Limits(pause_after_refusals=1), 1)],
)
def test_permanent_rejections_pause_the_chain(record: ChainRecord, limits: Limits, tries: int) -> None:
    for nth in range(1, tries + 1):
        pause = pauses(record, limits)
        assert pause == (nth == tries)
        record = rejected(record, nth, permanent=True, pause=pause)
    assert record.status is ChainStatus.PAUSED
    assert "no such thing" in record.reason


def test_other_rejections_never_pause_the_chain() -> None:
    record = ACCEPTED
    for now in range(100):
        record = rejected(record, now, permanent=False)
    assert (record.status, record.refusals, record.permanent) == (ChainStatus.ACTIVE, 100, 0)
    assert not pauses(record, LIMITS)
    assert not pauses(FRESH, Limits(pause_after_refusals=0))


def test_rejection_is_told_until_a_link_is_accepted_or_resumed() -> None:
    assert rejection_text(FRESH) == ""
    record = rejected(rejected(FRESH, 60, permanent=False), 360, permanent=False)
    text = rejection_text(record)
    assert "2 times since 1970-01-01T00:01:00Z: no such thing" in text
    paused = rejected(record, 400, permanent=True, pause=True)
    for forgiven in (
        machine.apply(paused, ResumeAsked(), 500),
        machine.apply_all(record, (LinkPlanned("again"), LinkSubmitted(1, JobId(9), 500)), 500),
    ):
        assert (forgiven.refused, forgiven.rejection, forgiven.permanent) == (ABSENT, "", 0)
        assert rejection_text(forgiven) == ""
