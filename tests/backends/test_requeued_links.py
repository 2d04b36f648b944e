"""Links whose jobs went back to the queue: accounting reports how the runs before ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from backends.test_cli_links import ID, KNOWN, NOW, RUNS, TAG, Accounting, queue, shown

from mirage.backends.cli_links import LinkTracker
from mirage.backends.jobquery import Fates
from mirage.domain.job import ABSENT, JobState, PastRun


def test_last_run_of_a_requeued_link_is_its_fate() -> None:
    first = replace(RUNS, state=JobState.PREEMPTED, end=NOW - 20, tag="")
    last = replace(RUNS, state=JobState.COMPLETED, submit=NOW - 20, start=NOW - 15, end=NOW - 1, tag="")
    accounting = Accounting()
    accounting.fates = Fates.of_runs([first, last], ())
    found = LinkTracker().account(queue(), {TAG: ID}, accounting, NOW, KNOWN)
    runs = (PastRun(RUNS.submit, RUNS.start, NOW - 20),)
    assert found == {TAG: replace(last, tag=TAG, past_runs=runs)}, "the run before is a separate link"


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING])
def test_requeued_link_has_the_runs_that_accounting_tells(state: JobState) -> None:
    start = ABSENT if state is JobState.PENDING else NOW - 3
    again = replace(RUNS, state=state, submit=NOW - 5, start=start)
    first = replace(RUNS, state=JobState.PREEMPTED, end=NOW - 20, tag="")
    other = replace(first, name="own16", user="bob", end=NOW - 7)
    last, every = Accounting(again), Accounting()
    every.fates = Fates.of_runs([first, other, replace(again, tag="", end=ABSENT)], ())
    found = LinkTracker().account(shown(again), {TAG: ID}, last, NOW, KNOWN, every)
    assert found[TAG] == replace(again, past_runs=(PastRun(RUNS.submit, RUNS.start, NOW - 20),))
    assert (last.asked, every.asked) == ([], [{ID}])


@pytest.mark.parametrize("resized", [1, 2])
@pytest.mark.parametrize("lasts", [True, False])
def test_resized_link_has_had_one_run(resized: int, lasts: bool) -> None:
    """The output of Slurm 22.05: each row has the time of its size as submit time, and the start of the run."""
    sizes = [replace(RUNS, nodes=4, state=JobState.RUNNING, end=RUNS.start + 10, tag="")]
    sizes += [replace(sizes[0], nodes=4 - k, submit=RUNS.start + 10 * k) for k in range(1, resized + 1)]
    state, end = (JobState.RUNNING, ABSENT) if lasts else (JobState.COMPLETED, NOW - 1)
    sizes[-1] = replace(sizes[-1], state=state, end=end)
    last, every = Accounting(), Accounting()
    last.fates, every.fates = Fates.of_runs(sizes[-1:], ()), Fates.of_runs(sizes, ())
    found = LinkTracker().account(queue(), {TAG: ID}, last, NOW, KNOWN, every)
    if not lasts:
        assert found[TAG] == replace(sizes[-1], submit=RUNS.submit, tag=TAG)
    assert not any(job.past_runs for job in found.values())
    (run,) = Fates.of_runs(sizes, ()).runs()
    assert run == replace(sizes[-1], submit=RUNS.submit)


def test_resized_link_that_is_requeued_has_had_two_runs() -> None:
    first = replace(RUNS, state=JobState.RUNNING, end=NOW - 30, tag="")
    smaller = replace(first, state=JobState.PREEMPTED, nodes=1, submit=NOW - 30, end=NOW - 20)
    again = replace(RUNS, state=JobState.RUNNING, nodes=1, submit=NOW - 20, start=NOW - 10)
    every = Accounting()
    every.fates = Fates.of_runs([again, smaller, first], ())
    found = LinkTracker().account(shown(again), {TAG: ID}, Accounting(again), NOW, KNOWN, every)
    assert found[TAG].past_runs == (PastRun(RUNS.submit, RUNS.start, NOW - 20),)


@pytest.mark.parametrize(("sent", "asked"), [(RUNS.submit, True), (NOW - 6, False), (ABSENT, False)])
def test_link_that_ran_before_anybody_saw_it_has_that_run(sent: int, asked: bool) -> None:
    again = replace(RUNS, state=JobState.PENDING, submit=NOW - 5, start=ABSENT)
    first = replace(RUNS, state=JobState.NODE_FAIL, end=NOW - 20, tag="")
    never_seen = {TAG: replace(KNOWN[TAG], submit=ABSENT, sent=sent)}
    every = Accounting()
    every.fates = Fates.of_runs([first, replace(again, tag="")], ())
    found = LinkTracker().account(shown(again), {TAG: ID}, Accounting(again), NOW, never_seen, every)
    assert found[TAG].past_runs == ((PastRun(RUNS.submit, RUNS.start, NOW - 20),) if asked else ())
    assert every.asked == ([{ID}] if asked else [])
    away = Accounting(answered=False)
    found = LinkTracker().account(shown(again), {TAG: ID}, Accounting(again), NOW, never_seen, away)
    assert found[TAG] == again, "its submit time is kept"


def test_requeued_link_is_asked_about_once() -> None:
    again = replace(RUNS, state=JobState.PENDING, submit=NOW - 5, start=ABSENT)
    known = {TAG: replace(KNOWN[TAG], submit=again.submit)}
    accounting = Accounting()
    LinkTracker().account(shown(again), {TAG: ID}, accounting, NOW, known)
    assert accounting.asked == []


def test_requeued_link_without_an_answer_stays_as_seen() -> None:
    again = replace(RUNS, state=JobState.PENDING, submit=NOW - 5, start=ABSENT)
    away = Accounting(answered=False)
    assert LinkTracker().account(shown(again), {TAG: ID}, away, NOW, KNOWN) == {
        TAG: replace(again, runs_untold=True)
    }


@pytest.mark.parametrize("start", [ABSENT, NOW - 1])
@pytest.mark.parametrize("was_seen", [True, False])
def test_job_on_its_way_to_the_queue_keeps_the_start_that_was_seen(start: int, was_seen: bool) -> None:
    """Slurm shows it as completing, with a start that moves with the clock, or none."""
    memory = LinkTracker()
    if was_seen:
        memory.account(shown(RUNS), {TAG: ID}, Accounting(), NOW - 60, KNOWN)
    leaving = replace(RUNS, start=start, end=start if start == ABSENT else NOW + 600)
    for told in ([], [replace(RUNS, tag="")]):
        found = memory.account(shown(leaving, is_completing=True), {TAG: ID}, Accounting(*told), NOW, KNOWN)
        expected = (RUNS.start, RUNS.end) if was_seen else (ABSENT, ABSENT)
        assert (found[TAG].start, found[TAG].end) == expected


def test_completing_job_whose_end_is_past_has_ended_then() -> None:
    ended = replace(RUNS, end=NOW - 1)
    found = LinkTracker().account(shown(ended, is_completing=True), {TAG: ID}, Accounting(), NOW, KNOWN)
    assert (found[TAG].start, found[TAG].end) == (RUNS.start, NOW - 1)
