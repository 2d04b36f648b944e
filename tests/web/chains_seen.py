"""Chains in every condition, made manually."""

from __future__ import annotations

from dataclasses import replace

from instants import HOUR, NOW

from mirage.domain.chain import (
    Chain,
    ChainId,
    ChainRecord,
    ChainStatus,
    HandoverPolicy,
    HandoverSettings,
    Steering,
)
from mirage.domain.job import JobId, JobRequest, JobState
from mirage.domain.link import Link, LinkState

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}"


def link(chain: Chain, index: int, submit: int, start: int, end: int, *, ended: bool = True) -> Link:
    """A link that has run, or runs."""
    return Link(
        index,
        chain.tag(index),
        submit,
        LinkState.ENDED if ended else LinkState.RUNNING,
        JobId(48_000 + 13 * index + len(chain.name)),
        submit,
        start,
        end,
        JobState.TIMEOUT if ended else JobState.RUNNING,
        reason="P90 of the start lies after the predecessor's end",
    )


def waiting(chain: Chain, index: int, submit: int) -> Link:
    tag = chain.tag(index)
    return Link(index, tag, submit, LinkState.PENDING, JobId(48_900 + index), submit, reason="it is time")


def chain_of(chain_id: str, name: str, owner: str, hours: int, nodes: int, **more: object) -> Chain:
    request = JobRequest(name, owner, hours * HOUR, nodes, "gpu", gres_per_node=(("gpu:a100", 4),))
    return replace(Chain(ChainId(chain_id), name, owner, request), **more)  # type: ignore[arg-type]


def training(owner: str = "alice") -> ChainRecord:
    """Six links: one interruption of 42 minutes, one overlap of an hour; the sixth runs."""
    chain = chain_of("llm-pretrain-k3q9", "llm-pretrain", owner, 24, 4, steering=Steering.PIN)
    starts = (-126, -101.3, -77.3, -54.3, -30.2, -6.1)
    links = []
    for number, hours in enumerate(starts, 1):
        start = NOW + int(hours * HOUR)
        submit = start - (7 + number % 3) * HOUR
        links.append(link(chain, number, submit, start, start + 24 * HOUR, ended=number < len(starts)))
    return ChainRecord(chain, tuple(links))


def service(owner: str = "alice") -> ChainRecord:
    """An inference service: links overlap on purpose; the next one waits."""
    handover = HandoverSettings(HandoverPolicy.WHEN_READY)
    chain = chain_of("chat-service-p2m4", "chat-service", owner, 12, 1, handover=handover)
    links = []
    for number in range(1, 5):
        start = NOW - (44 - 11 * number) * HOUR - 7 * HOUR
        links.append(link(chain, number, start - 2 * HOUR, start, start + 12 * HOUR, ended=number < 4))
    return ChainRecord(chain, (*links, waiting(chain, 5, NOW - 40 * 60)))


def paused(owner: str = "bob") -> ChainRecord:
    chain = chain_of("nightly-eval-x7w1", "nightly-eval", owner, 6, 2)
    start = NOW - 3 * HOUR
    links = (link(chain, 1, start - HOUR, start, start + 6 * HOUR, ended=False),)
    return ChainRecord(chain, links, ChainStatus.PAUSED, "paused by bob")


def young(owner: str = "bob") -> ChainRecord:
    chain = chain_of("protein-fold-a1b2", "protein-fold", owner, 48, 8)
    return ChainRecord(chain, (waiting(chain, 1, NOW - 5 * HOUR),))


def done(owner: str = "alice") -> ChainRecord:
    chain = chain_of("ablation-17-zz81", "ablation-17", owner, 8, 1)
    start = NOW - 90 * HOUR
    links = tuple(
        link(chain, n, start + (n * 8 - 12) * HOUR, start + n * 8 * HOUR + n * 300, start + (n + 1) * 8 * HOUR)
        for n in (1, 2, 3)
    )
    return ChainRecord(chain, links, ChainStatus.DONE, "a link exited with 0")


def stopped(owner: str = "bob") -> ChainRecord:
    chain = chain_of("typo-run-c0de", "typo-run", owner, 8, 64)
    reason = "3 submissions in a row were rejected: Requested node configuration is not available"
    return ChainRecord(chain, (), ChainStatus.STOPPED, reason, refusals=3)


def hostile(owner: str = "mallory") -> ChainRecord:
    """Everything that a user may name has markup in it."""
    chain = chain_of("evil-666", HOSTILE, owner, 2, 1)
    chain = replace(chain, request=replace(chain.request, partition=HOSTILE), predictor=HOSTILE)
    start = NOW - HOUR
    ended = replace(link(chain, 1, start - 2 * HOUR, start - HOUR, start - 60), reason=HOSTILE)
    return ChainRecord(chain, (ended, link(chain, 2, start - 60, start, start + 2 * HOUR, ended=False)))


def everything() -> tuple[ChainRecord, ...]:
    return (training(), service(), paused(), young(), done(), stopped())
