"""Which job is a link's: a job ID alone does not say it, since Slurm may give the number again. Pure.

A controller that lost its state counts from the beginning, and ``MaxJobId`` makes every controller do so once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.job import Job

_TAG = re.compile(r"(mirage:[A-Za-z0-9._-]+):([0-9]+)", re.ASCII)
_CLOCKS_APART: Seconds = 2 * 3_600
"""Maximum lead of the sender's clock over Slurm's."""
_KEPT_OF_NAME = 60
"""Characters of a job name that the accounting's database keeps, whatever their size in bytes."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """The known properties of a link's job; an empty or ``ABSENT`` one is not known and excludes nothing."""

    tag: str
    owner: str = ""
    name: str = ""
    """The job's name as it was asked for."""
    partition: str = ""
    """Partition, or Slurm's list of them, as it was asked for."""
    submit: Seconds = ABSENT
    """Slurm's submit time of the job, as a snapshot has shown it."""
    sent: Seconds = ABSENT
    """When it was sent, by the daemon's clock: where ``submit`` is not known, no older job is the link's."""


NO_IDENTITIES: Mapping[str, LinkIdentity] = MappingProxyType({})
"""No identity is known of any link beyond its tag."""


def is_tag(comment: str) -> bool:
    """Whether a comment is the tag of some link."""
    return comment.startswith("mirage:") and _TAG.fullmatch(comment) is not None


def is_link(job: Job, link: LinkIdentity) -> bool:
    """Whether a job with the ID of a link is the link's.

    A tag decides where the comment is one. Else the comment was edited, or accounting does not keep comments: then
    the submit time decides. A requeue sets a new submit time, so a later one is the link's, too, where name
    and partition are those of the link.
    """
    if link.owner and job.user != link.owner and not is_nameless(job.user):
        return False
    if is_tag(job.tag):
        return job.tag == link.tag or is_mark_of(job.tag, link.tag)
    if link.submit != ABSENT and job.submit == link.submit:
        return True
    return not _older(job, link) and _same_request(job, link)


def is_nameless(user: str) -> bool:
    """Whether this is what Slurm shows for a user whose name it could not find out just now.

    Its commands ask the user database of the machine for the name of a UID: where that does not answer they show
    ``nobody``, or the number. It says nothing about whose the job is.
    """
    return user in ("", "nobody") or user.isdecimal()


def is_mark_of(tag: str, link_tag: str) -> bool:
    """Whether a job with ``tag`` may be that of the link ``link_tag``: a requeued job bears an earlier tag."""
    found, of_link = _TAG.fullmatch(tag), _TAG.fullmatch(link_tag)
    if found is None or of_link is None or found[1] != of_link[1]:
        return False
    return (len(found[2]), found[2]) <= (len(of_link[2]), of_link[2])


def _older(job: Job, link: LinkIdentity) -> bool:
    first = link.submit
    if first == ABSENT and link.sent != ABSENT:
        first = link.sent - _CLOCKS_APART
    return job.submit != ABSENT and job.submit < first


def _same_request(job: Job, link: LinkIdentity) -> bool:
    if link.name and job.name[:_KEPT_OF_NAME] != link.name[:_KEPT_OF_NAME]:
        return False
    return not link.partition or bool({*job.partition.split(",")} & {*link.partition.split(",")})
