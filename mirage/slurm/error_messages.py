"""Meaning of Slurm's error sentences for the caller: the same in sbatch's stderr, REST answers and libslurm.

The sentences are those of ``slurm_strerror`` (22.05 to 26.05); matching ignores case and takes parts, because
releases add to them. A rejection is either permanent, so that no retry can succeed, or passes.
"""

from __future__ import annotations

import re

from mirage.domain.errors import (
    ClusterUnavailable,
    JobBlocked,
    MirageError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)

_PERMANENT = frozenset(
    {
        "BadConstraints",
        "BurstBufferInvalid",
        "InvalidAccount",
        "InvalidFeature",
        "InvalidGRES",
        "InvalidLicense",
        "InvalidNodeName",
        "InvalidOption",
        "InvalidQOS",
        "InvalidScript",
        "InvalidTRES",
        "InvalidText",
        "InvalidUser",
        "InvalidWCKey",
        "JobScriptMissing",
        "NoScript",
        "OptionUnknownToPyslurm",
        "OptionUnknownToREST",
        "ParameterTooLong",
        "PartitionAccess",
        "PartitionCpuLimit",
        "PartitionInvalid",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "ReservationAccess",
    }
)
# Limits on one job, such as AssocMaxWallDurationPerJobLimit, AssocMaxGRESPerNode, QOSMinCpuNotSatisfied. Limits on
# all jobs of a user or an account (MaxSubmit, MaxJobs, Grp) pass as other jobs end.
_LIMIT_OF_ONE_JOB = re.compile(r"(?:Assoc|QOS)(?:Max[A-Za-z]+Per(?:Job|Node)|Min)[A-Za-z]*")


# About one request or one partition, permanent or temporary.
_OF_ONE_REQUEST = (_PERMANENT - {"InvalidAccount", "InvalidQOS", "InvalidUser", "InvalidWCKey"}) | {
    "InvalidDependency",
    "PartitionConfig",
    "PartitionDown",
    "ReqNodeNotAvail",
    "ReservationInvalid",
}
_LIMIT = re.compile("Assoc|QOS|MaxSubmit|Grp")


def is_permanent(reason: str) -> bool:
    """Whether Slurm will reject the same request again, whenever it is submitted.

    ``reason``: the word of a ``SubmissionRejected``. A word that is not known may pass.
    """
    return reason in _PERMANENT or _LIMIT_OF_ONE_JOB.fullmatch(reason) is not None


def is_limit(reason: str) -> bool:
    """Whether a limit on the user, the account or the QOS is what rejected the job."""
    return _LIMIT.match(reason) is not None


def concerns_others(reason: str) -> bool:
    """Whether the cause may lie with Slurm itself, so that other requests would be rejected as well.

    Unknown accounts, users and QOS do: Slurm knows none while it has lost its accounting. Limits apply to those
    they are set for, and what one partition does not give says nothing of the next.
    """
    return reason not in _OF_ONE_REQUEST and not is_limit(reason)


_UNREACHABLE = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted",
    "unexpected message received",
    "message send failure",
    "message receive failure",
    "communication connection failure",
    "communication shutdown failure",
    "unexpected missing socket",
    "connection refused",
    "connection timed out",
    "connection reset",
    "no route to host",
    "network is unreachable",
    "transport endpoint",
    "broken pipe",
    "temporarily unable to accept",
    "resource temporarily unavailable",
    "unable to create job record, try again",
    "db index is being set",
    "internal error",
    "rate limit",
    "rpc limit",
    "backoff",
    "standby mode",
    "protocol authentication error",
    "authentication agent",
    "authentication credential",
    "authentication plugin",
    "munge",
    "unable to process configuration",
    "could not establish a configuration",
    "parse_config",
    "incompatible versions",
    "error while loading shared libraries",
    "memory management error",
    "cannot allocate memory",
)

# Part of a sentence, and one word for it: Slurm's pending reason where there is one for the same thing.
_REFUSALS = (
    ("requested time limit is invalid", "PartitionTimeLimit"),
    ("time limit specification required", "PartitionTimeLimit"),
    ("invalid time-min", "PartitionTimeLimit"),
    ("invalid partition name", "PartitionInvalid"),
    ("no partition specified", "PartitionInvalid"),
    ("partition not available", "PartitionDown"),
    ("partition in down state", "PartitionDown"),
    ("partition configuration not available", "PartitionConfig"),
    ("group not permitted to use this partition", "PartitionAccess"),
    ("invalid account", "InvalidAccount"),
    ("invalid qos", "InvalidQOS"),
    ("breached requested qos usage", "QOSUsageThreshold"),
    ("node count specification invalid", "PartitionNodeLimit"),
    ("more CPUs requested than permitted", "PartitionCpuLimit"),
    ("requested nodes not in this partition", "InvalidNodeName"),
    ("invalid node name", "InvalidNodeName"),
    ("required node not available", "ReqNodeNotAvail"),
    ("invalid feature specification", "InvalidFeature"),
    ("preferred feature specification", "InvalidFeature"),
    ("gres", "InvalidGRES"),
    ("trackable resource", "InvalidTRES"),
    ("requested node configuration is not available", "BadConstraints"),
    ("memory required by task", "BadConstraints"),
    ("memory specification can not be satisfied", "BadConstraints"),
    ("cpu count specification invalid", "BadConstraints"),
    ("cpu count per node can not be satisfied", "BadConstraints"),
    ("task count specification invalid", "BadConstraints"),
    ("access denied to requested reservation", "ReservationAccess"),
    ("requested reservation", "ReservationInvalid"),
    ("maintenance reservation", "ReservationInvalid"),
    ("job dependency problem", "InvalidDependency"),
    ("circular job dependency", "InvalidDependency"),
    ("invalid license", "InvalidLicense"),
    ("violates accounting/qos policy", "AssocLimit"),
    ("invalid wckey", "InvalidWCKey"),
    ("invalid user id", "InvalidUser"),
    ("user not found", "InvalidUser"),
    ("access/permission denied", "AccessDenied"),
    ("system submissions disabled", "SubmissionsDisabled"),
    ("invalid --", "InvalidOption"),
    ("unrecognized --", "InvalidOption"),
    ("invalid numeric value", "InvalidOption"),
    ("--propagate=", "InvalidOption"),
    ("is less than minimum node count", "InvalidOption"),
    ("cannot specify both", "InvalidOption"),
    ("doesn't allow an argument", "InvalidOption"),
    ("is ambiguous", "InvalidOption"),
    (": unmatched `", "InvalidScript"),
    (": unexpected `:` in [", "InvalidScript"),
    ("invalid directive", "InvalidScript"),
    ("invalid job array", "InvalidOption"),
    ("unrecognized option", "InvalidOption"),
    ("requires an argument", "InvalidOption"),
    ('try "sbatch --help"', "InvalidOption"),
    ("does not look like a batch script", "InvalidScript"),
    ("batch script", "InvalidScript"),
    ("script not specified", "InvalidScript"),
    ("too long", "ParameterTooLong"),
    ("script exceeds", "InvalidScript"),
    ("burst buffer", "BurstBufferInvalid"),
)

_NOT_KNOWN = (
    "invalid job id",
    "already finished",
    "no longer pending",
    "not pending nor running",
    "is pending execution",
    "job is not running",
    "already completing or completed",
    "can not be altered now",
    "job has already started",
)
# A job has no index for some seconds; where slurmctld was killed within them, it never gets one.
_BLOCKED = ("db index is being set",)
_NOT_OURS = ("access/permission denied", "invalid user id", "not permitted on this job", "job is not yours")
_LIMIT_WORD = re.compile(r"\b(?:Assoc|QOS|MaxSubmit|Grp)[A-Za-z]+")
_ANSWERED = (
    "error:",
    "allocation failure:",
    "unrecognized option",
    "requires an argument",
    "doesn't allow an argument",
    "is ambiguous",
    ": unmatched `",
    ": unexpected `:` in [",
)
"""Some mistakes are found by sbatch itself, or by getopt(3) for it, which write no ``error:``."""


def unreachable(text: str) -> bool:
    """Whether the sentence says that the controller (or what leads to it) did not answer properly."""
    return _has(text, _UNREACHABLE)


def access_denied(text: str) -> bool:
    """Whether the sentence says that Slurm does not show this to who asks."""
    return _has(text, ("access/permission denied",))


def already_ended(text: str) -> bool:
    """Whether the sentence says that the job has ended, and the controller still knows it."""
    return _has(text, ("already completing or completed", "already finished"))


def refusal(text: str, what: str) -> ClusterUnavailable | SubmissionRejected:
    """The error for Slurm's text about a submission; ``what`` names the step, such as ``sbatch``.

    A rejection has one word as reason (``InvalidAccount``, ``AssocMaxSubmitJobLimit``; ``Refused`` where the
    sentence is none that is known) and Slurm's words as detail. Text that is no answer of Slurm's is none.
    """
    said = one_line(text)
    if unreachable(text) or not _has(text, _ANSWERED):
        return ClusterUnavailable(f"{what}: {said or 'failed without a word'}")
    reason = _reason(text)
    return SubmissionRejected(reason, said.removeprefix(f"{reason}; "))


def refused_act(text: str, what: str) -> MirageError:
    """The error for Slurm's text about an action on a job; ``what`` names the act and the job."""
    said = one_line(text)
    if _has(text, _NOT_OURS):
        return NotPermitted(f"{what}: {said}; only the job's owner and operators may")
    if _has(text, _NOT_KNOWN):
        return UnknownJob(f"{what}: {said}")
    if _has(text, _BLOCKED):
        return JobBlocked(f"{what}: {said}")
    return ClusterUnavailable(f"{what}: {said or 'failed without a word'}")


def one_line(text: str) -> str:
    """Slurm's text on one line of bounded length, without names of programs."""
    sentences = dict.fromkeys(_bare(line) for line in text.splitlines())
    joined = "; ".join(sentence for sentence in sentences if sentence)
    return joined if len(joined) <= 300 else joined[:297] + "..."


def _bare(line: str) -> str:
    return re.sub(r"^\s*s[a-z]+: (?:error|fatal|warning)?:?\s*", "", line).strip()


def _reason(text: str) -> str:
    word = _LIMIT_WORD.search(text)
    if word:
        return word[0]
    return next((reason for part, reason in _REFUSALS if part in text.lower()), "Refused")


def _has(text: str, parts: tuple[str, ...]) -> bool:
    lowered = text.lower()
    return any(part in lowered for part in parts)
