"""Whether a chain is complete: it has run the number of links, or the total time, that its owner set. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainStatus
from mirage.provisioner.failures import links_have_run

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link


def suffices(record: ChainRecord) -> str:
    """A sentence when the links on the cluster complete the chain, else empty."""
    done, ran = record.chain.done, [link for link in record.links if link.worked]
    if done.links and len(ran) >= done.links:
        return f"link {ran[-1].index} is the last of {done.links}"
    if done.total_time and _running_time(ran) >= done.total_time:
        return f"link {ran[-1].index} completes the total time of {done.total_time} s"
    return ""


def done_if_enough(record: ChainRecord) -> ChainRecord:
    """Done when there were enough links, or enough running time; however the last one ended."""
    final = [link for link in record.links if link.worked and link.final]
    done = record.chain.done
    if done.links and len(final) >= done.links:
        return replace(record, status=ChainStatus.DONE, reason=links_have_run(final))
    if done.total_time and _running_time(final) >= done.total_time:
        return replace(record, status=ChainStatus.DONE, reason=f"ran for {_running_time(final)} s in all")
    return record


def _running_time(links: list[Link]) -> Seconds:
    """Seconds the links ran, those still running taken to their limit."""
    return sum(link.end - link.start for link in links)
