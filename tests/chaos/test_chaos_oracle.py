"""The oracle can fail: daemons with one part spoilt are found out, each by the invariant that it breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from chaos.scenario import NO_PEOPLE, play

from mirage.backends.cli_links import LinkTracker
from mirage.control.loop import ControlLoop
from mirage.domain.link import LinkState
from mirage.provisioner import events, handover, machine
from mirage.provisioner.failures import suffices
from mirage.slurm import rows
from mirage.store.chains import SqlChainStore

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch


def a_link_sent_is_never_found(patch: Patch) -> None:
    found = events._of_link

    def blind(link, job, now):
        return () if link.state is LinkState.PLANNED else found(link, job, now)

    patch.setattr(events, "_of_link", blind)


def silence_is_taken_for_an_answer(patch: Patch) -> None:
    freeze = ControlLoop._freeze

    def as_if_fresh(self, now):
        snapshot = freeze(self, now)
        return replace(snapshot, stale_since=-1, time=now, links={}) if snapshot.stale else snapshot

    patch.setattr(ControlLoop, "_freeze", as_if_fresh)


def half_an_answer_is_taken_for_all(patch: Patch) -> None:
    cut = rows.split_rows

    def lenient(text, fields, mark, free=0):
        whole, end, _ = text.rpartition(f"{mark}\n")
        return cut(whole + end, fields, mark, free)

    patch.setattr(rows, "split_rows", lenient)
    patch.setattr(LinkTracker, "_fate", lambda *_, certain: None)


def an_end_is_not_told(patch: Patch) -> None:
    save = SqlChainStore.save

    def forgetful(self, record, *entries):
        save(self, record, *(entry for entry in entries if "ended" not in entry.text))

    patch.setattr(SqlChainStore, "save", forgetful)


def nobody_follows_a_preempted_link(patch: Patch) -> None:
    need = machine.need

    def idle(record, *instants):
        gone = [link for link in record.links if link.job_state.name in ("PREEMPTED", "NODE_FAIL", "FAILED")]
        return machine.NoAction("it is gone") if gone and not record.live else need(record, *instants)

    patch.setattr(machine, "need", idle)


def a_forecast_beyond_the_limit_floods_the_queue(patch: Patch) -> None:
    def hasty(record, *_):
        if record.waiting or suffices(record) or record.status != "active":
            return machine.NoAction("enough")
        return machine.Successor(None)

    patch.setattr(machine, "need", hasty)


def early_links_do_not_wait_for_their_predecessors(patch: Patch) -> None:
    patch.setattr(handover, "awaited", lambda record, link: ())


@pytest.mark.parametrize(
    ("spoil", "found", "first"),
    [
        (a_link_sent_is_never_found, "two jobs for one link", 50),
        (silence_is_taken_for_an_answer, "has not seen the queue", 3),
        (half_an_answer_is_taken_for_all, "waits in the queue", 5),
        (an_end_is_not_told, "the journal lacks", 0),
        (nobody_follows_a_preempted_link, "is lost", 2),
        (a_forecast_beyond_the_limit_floods_the_queue, "run", 0),
        (early_links_do_not_wait_for_their_predecessors, "of one writer run together", 1),
    ],
)
def test_a_spoilt_daemon_is_found_out(
    spoil: Callable[[Patch], None], found: str, first: int, monkeypatch: Patch
) -> None:
    """``first``: a seed that finds it, tried before all others to save their time."""
    spoil(monkeypatch)
    seeds = (first, *range(120))
    assert any(found in each for seed in seeds for each in play(seed, climate=NO_PEOPLE).broken)
