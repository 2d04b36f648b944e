"""slurmrestd's lists of errors: what went wrong, in Slurm's words and by what the caller can do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from mirage.domain.errors import SubmissionRejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.slurm.rest.fields import Record


class Cause(Enum):
    """Why a request was not done."""

    UNKNOWN_JOB = auto()
    """No such job, or no longer."""
    WRONG_STATE = auto()
    """The job does not pend, or does not run."""
    FINISHED = auto()
    """The job has ended already."""
    DENIED = auto()
    """Whoever asks may not do it."""
    UNREACHABLE = auto()
    """slurmctld or slurmdbd could not be asked, or did not know who asks."""
    REFUSED = auto()
    """Anything else: Slurm understood and said no."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of a list of errors."""

    number: int
    """Slurm's own (slurm_errno.h); 0 where it is not given."""
    text: str

    @property
    def cause(self) -> Cause:
        """By number, and by text for v0.0.36, which gives numbers for submissions only."""
        if self.number in _CAUSES:
            return _CAUSES[self.number]
        if any(low <= self.number < high for low, high in _UNREACHABLE):
            return Cause.UNREACHABLE
        return next((cause for words, cause in _WORDS if words in self.text.lower()), Cause.REFUSED)

    @property
    def reason(self) -> str:
        """One word, such as InvalidAccount."""
        named = _REASONS.get(self.number)
        return named or "".join(word.capitalize() for word in re.findall(r"[A-Za-z]+", self.text)[:5]) or "Refused"


def read_faults(errors: Sequence[Record]) -> tuple[Fault, ...]:
    """The entries, whichever version wrote them: the number is ``error_number`` or ``error_code``."""
    return tuple(_fault(entry) for entry in errors)


def _fault(entry: Record) -> Fault:
    number = entry.get("error_number", entry.get("error_code", 0))
    words = [entry[name] for name in ("error", "description") if isinstance(entry.get(name), str)]
    return Fault(number if type(number) is int else 0, ": ".join(words) or "no reason given")


def spell(faults: Sequence[Fault]) -> str:
    """All of them in one line."""
    return "; ".join(dict.fromkeys(fault.text for fault in faults)) or "no reason given"


def worst(faults: Sequence[Fault]) -> Cause:
    """The cause that decides: one that names the job or the asker, before one that only says that it failed."""
    causes = {fault.cause for fault in faults}
    return next(
        (cause for cause in Cause if cause in causes and cause is not Cause.UNREACHABLE), Cause.UNREACHABLE
    )


def rejection(faults: Sequence[Fault]) -> SubmissionRejected:
    """Slurm's refusal of a job."""
    decisive = next((fault for fault in faults if fault.number in _REASONS), faults[-1])
    return SubmissionRejected(decisive.reason, spell(faults))


_CAUSES = {
    2017: Cause.UNKNOWN_JOB,
    2002: Cause.DENIED,
    2010: Cause.DENIED,
    2021: Cause.FINISHED,
    2084: Cause.FINISHED,
    2020: Cause.WRONG_STATE,
    2024: Cause.WRONG_STATE,
    2073: Cause.WRONG_STATE,
    2083: Cause.WRONG_STATE,
    2085: Cause.WRONG_STATE,
    2086: Cause.WRONG_STATE,
    -1: Cause.UNREACHABLE,
    2027: Cause.UNREACHABLE,
    2131: Cause.UNREACHABLE,
    9008: Cause.UNREACHABLE,
}
_UNREACHABLE = ((1000, 2000), (5000, 5100), (6000, 6100), (7000, 7100))
"""Messages between daemons, sockets, credentials, accounting."""

_WORDS = (
    ("invalid job id", Cause.UNKNOWN_JOB),
    ("unknown job", Cause.UNKNOWN_JOB),
    ("already completing or completed", Cause.FINISHED),
    ("already finished", Cause.FINISHED),
    ("cannot be altered now", Cause.WRONG_STATE),
    ("no longer pending", Cause.WRONG_STATE),
    ("permission denied", Cause.DENIED),
    ("invalid user id", Cause.DENIED),
    ("unable to contact slurm controller", Cause.UNREACHABLE),
    ("connect failure", Cause.UNREACHABLE),
    ("unexpected message received", Cause.UNREACHABLE),
    ("socket timed out", Cause.UNREACHABLE),
    ("authentication", Cause.UNREACHABLE),
)

_REASONS = {
    2000: "InvalidPartition",
    2001: "InvalidPartition",
    2002: "AccessDenied",
    2003: "PartitionGroup",
    2004: "NodesNotInPartition",
    2005: "TooManyCpus",
    2006: "InvalidNodeCount",
    2007: "MaxJobCount",
    2010: "InvalidUser",
    2014: "NodeConfigUnavailable",
    2015: "PartitionConfigUnavailable",
    2029: "InvalidFeature",
    2037: "InvalidDependency",
    2044: "InvalidMemory",
    2045: "InvalidAccount",
    2048: "InvalidLicenses",
    2050: "AccountingPolicy",
    2051: "PartitionTimeLimit",
    2052: "ReservationAccess",
    2053: "InvalidReservation",
    2054: "InvalidTime",
    2066: "InvalidQOS",
    2069: "InvalidCpuCount",
    2070: "PartitionNotAvailable",
    2072: "InvalidGres",
    2101: "PartitionDown",
    2105: "SubmissionsDisabled",
    2115: "InvalidTres",
    2119: "InvalidGres",
    2122: "InvalidGres",
    2123: "InvalidNice",
    2127: "EnvironmentMissing",
    9001: "NotUnderstood",
}
"""Slurm's error numbers as the one-word reasons of a refusal; those of submissions that a request can meet."""
