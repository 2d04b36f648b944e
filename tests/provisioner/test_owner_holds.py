"""``--hold``: the owner keeps the first link until he releases it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import chain
from provisioner.test_machine import SETTLE, after, submitted

from mirage.domain.chain import ChainRecord, Steering
from mirage.provisioner import machine
from mirage.provisioner.events import LinkQueued
from mirage.provisioner.machine import Rest, Steer


def test_hold_counts_for_the_first_link_only() -> None:
    kind = chain()
    kind = replace(kind, request=replace(kind.request, held=True))
    assert [kind.link_request(index).held for index in (1, 2, 3)] == [True, False, False]


@pytest.mark.parametrize(("held", "need"), [(True, Rest), (False, Steer)])
def test_link_held_by_its_owner_is_not_steered(held: bool, need: type) -> None:
    kind = chain(steering=Steering.HOLD)
    record = ChainRecord(replace(kind, request=replace(kind.request, held=held)))
    record = after(submitted(record), LinkQueued(1))
    assert isinstance(machine.need(record, 0, SETTLE), need)
