"""The two kinds of rejections: those that no retry can fix, and those that pass."""

from __future__ import annotations

import re

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
