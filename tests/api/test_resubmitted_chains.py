"""A chain submitted again while a job of the cancelled one still ends: two jobs may write the same files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api_world import START, definition, world

from mirage.domain.chain import ChainStatus
from mirage.domain.job import JobId
from mirage.domain.link import Link, LinkState

if TYPE_CHECKING:
    from api_world import World

__all__ = ["world"]

CHAINS = "/api/v1/chains"


@pytest.mark.parametrize(
    ("state", "status", "name", "warned"),
    [
        (LinkState.RUNNING, ChainStatus.STOPPED, "train", True),
        (LinkState.ENDED, ChainStatus.STOPPED, "train", False),
        (LinkState.RUNNING, ChainStatus.ACTIVE, "train", False),
        (LinkState.RUNNING, ChainStatus.STOPPED, "other", False),
    ],
)
def test_job_of_the_earlier_chain_is_named(
    world: World, state: LinkState, status: ChainStatus, name: str, warned: bool
) -> None:
    assert world.call("POST", CHAINS, definition())[0] == 201
    (record,) = world.loop.records
    link = Link(1, record.chain.tag(1), START, state, JobId(101), START, start=START, end=START + 60)
    world.loop.records = [replace(record, links=(link,), status=status)]
    world.loop.cycle()
    code, answer = world.call("POST", CHAINS, definition("train-p2m4", name=name))
    assert code == 201
    assert ("job 101 of chain" in answer["warning"]) == warned
