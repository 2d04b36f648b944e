"""Callers who ask much wait while the loop is in a cycle, and large bodies count as many requests."""

from __future__ import annotations

import asyncio

import pytest

from mirage.api.access.rates import RateLimiter, RightOfWay, TooOften


class Loop:
    """Reports a cycle on demand; counts its calls."""

    def __init__(self) -> None:
        self.in_cycle, self.asked = True, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.in_cycle


def way_of(loop: Loop, burst: int = 2) -> RightOfWay:
    return RightOfWay(loop, RateLimiter(0.001, burst))


def test_way_busy_caller_waits_for_the_cycle_and_others_do_not() -> None:
    loop = Loop()
    way = way_of(loop)

    async def scene() -> None:
        for _ in range(2):
            await way.give("mallory")
        waiting = [asyncio.create_task(way.give("mallory")) for _ in range(100)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(way.give("bob"), 1)
        assert not any(task.done() for task in waiting)
        assert loop.asked < 130, "all who wait share one look at the loop"
        loop.in_cycle = False
        await asyncio.wait_for(asyncio.gather(*waiting), 5)
        await asyncio.wait_for(way.give("mallory"), 1)

    asyncio.run(scene())


def test_way_endless_cycle_keeps_no_caller_waiting() -> None:
    way = RightOfWay(Loop(), RateLimiter(0.001, 0), longest=0.05)
    asyncio.run(asyncio.wait_for(way.give("mallory"), 5))


def test_way_one_caller_has_one_document_read_at_a_time() -> None:
    loop = Loop()
    loop.in_cycle = False
    way, reading, most = way_of(loop), {"mallory": 0, "bob": 0}, {"mallory": 0, "bob": 0}

    async def read(caller: str) -> None:
        async with way.alone(caller):
            reading[caller] += 1
            most[caller] = max(most[caller], reading[caller])
            assert sum(reading.values()) <= 2
            await asyncio.sleep(0.001)
            reading[caller] -= 1

    async def scene() -> None:
        await asyncio.gather(*(read("mallory") for _ in range(20)), read("bob"))

    asyncio.run(scene())
    assert most == {"mallory": 1, "bob": 1}


def test_rates_large_bodies_are_paid_for_by_the_next_requests() -> None:
    now = 0.0
    rates = RateLimiter(10, 20, lambda: now)
    rates.take("mallory")
    rates.charge("mallory", 39)
    with pytest.raises(TooOften) as refused:
        rates.take("mallory")
    assert refused.value.wait == 3
    rates.take("bob")
    now = 2.2
    rates.take("mallory")
