"""Each action of people finds a daemon that is broken where it matters, and a sound one passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chaos.people import DEEDS, SCRIPT, People
from chaos.scenario import Climate, play

from mirage.control import permits
from mirage.control.commands import CommandApplier
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import ABSENT, JobChange
from mirage.domain.link import NO_JOB, LinkState
from mirage.provisioner import handover, machine, pending, steering
from mirage.store.chains import SqlChainStore

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch
TRIES = 40
"""Seeds, from the one on that is known to find the daemon out: the draws may change."""
OFTEN = 30
"""Most actions of one kind in a scenario."""


def limits_are_those_requested(patch: Patch) -> None:
    def as_requested(record, event):
        return ABSENT if event.start == ABSENT else event.start + record.chain.request.limit

    patch.setattr(machine, "limit_end", as_requested)


def a_warning_is_forgotten_when_the_limit_is_raised(patch: Patch) -> None:
    limited = machine.with_limit

    def forgetful(record, event, limit_end, at):
        return replace(limited(record, event, limit_end, at), warned_from=ABSENT, warned_until=ABSENT)

    patch.setattr(machine, "with_limit", forgetful)


def the_hold_of_an_administrator_is_not_respected(patch: Patch) -> None:
    patch.setattr(pending, "held_by_admin", lambda job: False)


def every_hold_counts_as_its_own(patch: Patch) -> None:
    steerable = machine.steerable
    patch.setattr(machine, "steerable", lambda record, link: steerable(record, link) or link.job_id != NO_JOB)
    patch.setattr(steering, "held_back", lambda job, chain: job.held)
    patch.setattr(steering, "wanted_back", lambda *_: False)
    patch.setattr(steering, "change", lambda chain, predecessor, *, back: JobChange(held=back))


def a_hold_alone_keeps_links_apart(patch: Patch) -> None:
    patch.setattr(handover, "awaited", lambda record, link: ())


def a_run_that_was_requeued_counts_twice(patch: Patch) -> None:
    requeued = machine.requeued

    def twice(record, event, now):
        record = requeued(record, event, now)
        again = record.links[-1]
        if again.state is not LinkState.SUBMITTED:
            return record
        run = replace(again, state=LinkState.ENDED, start=event.end, end=event.end, requeued=True)
        record, index = record.with_link(run), again.index + 1
        return record.with_link(replace(again, index=index, tag=record.chain.tag(index)))

    patch.setattr(machine, "requeued", twice)


def a_cancelled_successor_is_submitted_again(patch: Patch) -> None:
    patch.setattr(machine, "_cancelled_pending", lambda record, link, now: record)


def a_limit_of_jobs_counts_as_permanent(patch: Patch) -> None:
    patch.setattr(permits, "is_permanent", lambda reason: True)


def a_pinned_link_waits_for_its_node_for_good(patch: Patch) -> None:
    patch.setattr(
        steering, "wanted_back", lambda job, record, predecessor, now: steering.held_back(job, record.chain)
    )


def it_goes_on_without_its_store(patch: Patch) -> None:
    save = SqlChainStore.save

    def hopeful(self, record, *entries):
        try:
            save(self, record, *entries)
        except StoreUnavailable:
            self._records = {**self._known(), record.chain.chain_id: record}

    patch.setattr(SqlChainStore, "save", hopeful)


def the_script_is_read_for_each_link(patch: Patch) -> None:
    with_script = SqlChainStore.with_script

    def anew(self, request):
        request = with_script(self, request)
        script = Path(request.batch.directory, SCRIPT)
        text = script.read_text() if script.exists() else "#!/bin/sh\n"
        return replace(request, batch=replace(request.batch, text=text))

    patch.setattr(SqlChainStore, "with_script", anew)


def one_bad_command_ends_all(patch: Patch) -> None:
    def hasty(self, commands, now):
        try:
            for each in commands:
                each.answer.set_result(self._apply(each, now))
        except Exception as error:
            for each in commands:
                if not each.answer.done():
                    each.answer.set_exception(error)
        return []

    patch.setattr(CommandApplier, "_apply_all", hasty)


SPOILT = [
    (People.limit_lowered, limits_are_those_requested, "steps are", 0),
    (People.limit_raised, a_warning_is_forgotten_when_the_limit_is_raised, "steps are", 3),
    (People.limit_raised_again, a_warning_is_forgotten_when_the_limit_is_raised, "steps are", 0),
    (People.held_by_admin, the_hold_of_an_administrator_is_not_respected, "which an administrator holds", 0),
    (People.held_by_owner, every_hold_counts_as_its_own, "which its owner holds", 0),
    (People.released, a_hold_alone_keeps_links_apart, "follows step", 0),
    (People.requeued, a_run_that_was_requeued_counts_twice, "without cause", 0),
    (People.successor_cancelled, a_cancelled_successor_is_submitted_again, "was cancelled while it waited", 0),
    (People.submissions_limited, a_limit_of_jobs_counts_as_permanent, "is paused without cause", 0),
    (People.node_drained, a_pinned_link_waits_for_its_node_for_good, "never came to an end", 0),
    (People.store_read_only, it_goes_on_without_its_store, "its intent is not stored", 0),
    (People.script_edited, the_script_is_read_for_each_link, "runs another script", 0),
    (People.garbage_posted, one_bad_command_ends_all, "ResumeChain by chaos is answered with", 0),
]


def test_every_deed_has_a_daemon_that_it_finds_out() -> None:
    assert {deed for deed, *_ in SPOILT} == set(DEEDS)


@pytest.mark.parametrize(("deed", "spoil", "found", "first"), SPOILT)
def test_a_deed_finds_out_a_spoilt_daemon(
    deed: Callable[[People], None], spoil: Callable[[Patch], None], found: str, first: int, monkeypatch: Patch
) -> None:
    """That action alone finds it: where nothing else happens, a sound daemon passes on the same seed."""
    climate = Climate(faults=False, deeds=(deed,), most_deeds=OFTEN)
    with monkeypatch.context() as patch:
        spoil(patch)
        seeds = range(first, first + TRIES)
        told = (seed for seed in seeds if any(found in each for each in play(seed, climate=climate).broken))
        seed = next(told, None)
    assert seed is not None
    sound = play(seed, climate=climate)
    assert not sound.broken, str(sound)
