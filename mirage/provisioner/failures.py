"""Which ends of a link count as failures in a row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.job import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.chain import ChainRecord, Link
    from mirage.domain.job import Seconds

PROGRESS_AFTER: Seconds = 3_600
"""Running time after which a failed link has made progress; half of the time limit where that is less."""

_AT_ONCE = 60
_FAILED_STARTS = 3
_BROKEN = (JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.BOOT_FAIL)
"""Ends that recur; a preempted or cancelled link may have better luck."""


def made_progress(record: ChainRecord, link: Link) -> bool:
    """Whether the link ran so long that its failure is no crash at the start."""
    enough = min(PROGRESS_AFTER, record.chain.request.limit // 2)
    return link.started and link.end - link.start >= enough


def fails_to_start(record: ChainRecord) -> str:
    """Why the chain is to pause, as continuing at once would only use up one link after another; else empty."""
    last = [link for link in record.links if link.final][-_FAILED_STARTS:]
    if record.failures < _FAILED_STARTS or not all(_failed_at_once(link) for link in last):
        return ""
    how = f"{_FAILED_STARTS} links in a row failed within {_AT_ONCE} s of their start, or were lost before it"
    return f"{how}; fix the cause, then resume"


def links_have_run(links: Sequence[Link]) -> str:
    """Why a chain is done that had these links; how many of them failed is told."""
    failed = sum(link.job_state in _BROKEN for link in links)
    return f"{len(links)} links have run" + (f", {failed} of them failed" if failed else "")


def warned_at_once(record: ChainRecord) -> str:
    """Why the chain is to pause, where link after link exits as it starts, warned of its limit; else empty."""
    last = [link for link in record.links if link.started and link.final][-_FAILED_STARTS:]
    left = [link.job_state is JobState.COMPLETED and link.end - link.start <= _AT_ONCE for link in last]
    if len(left) < _FAILED_STARTS or not all(left):
        return ""
    how = f"{_FAILED_STARTS} links in a row ended with exit code 0 within {_AT_ONCE} s of their start"
    return f"{how}, warned of their limit; raise the time limit or shorten the time of --signal, then resume"


def _failed_at_once(link: Link) -> bool:
    if not link.started:  # one that is only unknown may have been somebody's to cancel
        return link.job_state is JobState.NODE_FAIL
    broken = link.requeued or link.job_state in _BROKEN
    return broken and link.end - link.start <= _AT_ONCE
