"""The exception tree, split by what the caller does about it.

MirageError
├── ConfigError            stop; names the file and the key
├── TraceError             stop, or count the row and continue (lenient); names file, line and field
├── BadSpelling             a text is not what Slurm writes; the reader adds the place
├── ClusterUnavailable     hold, retry at the next cycle
│   ├── BackEndLost        the same; a submission that does this repeatedly pauses its chain
│   └── JobBlocked         the same; a link that stays blocked is replaced
├── SubmissionRejected     record Slurm's words; retry, or pause where no retry can fix it
├── NotPermitted           report it to the caller; a link of a chain is retried at the next cycle
├── QuotaExceeded          report it to the caller; nothing is stored
├── UnsupportedSlurm       stop at start-up; lists the versions that are known
├── UnknownChain           report it to the caller
├── ChainOver              report it to the caller; the chain is to be submitted again
├── StoreUnavailable       retry at the next cycle; nothing is half-written
├── UnknownJob             the cluster does not know the job; re-derive from the next snapshot
├── ArtifactMismatch       a model that cannot be used, or not here; the fallback answers
├── PluginNotFound         stop at start-up; lists what is installed
└── MissingExtra           stop; names the pip extra to install
"""

from __future__ import annotations

from mirage.domain.texts import storable


class MirageError(Exception):
    """Base of every error that Mirage raises on purpose; its text is written for the user.

    It may quote a user or a program; ``str`` of it can be stored and sent, whatever bytes they wrote.
    """

    def __str__(self) -> str:
        return storable(super().__str__())


class ConfigError(MirageError):
    """A cluster or configuration file is wrong: ``where`` names the file and the key or line."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class TraceError(MirageError):
    """A trace file or one of its rows cannot be used.

    ``line`` is the 1-based line in the file, 0 when the whole file is wrong; ``field`` is the
    column's name, empty when it is the row as a whole.
    """

    def __init__(self, path: str, line: int, field: str, problem: str) -> None:
        place = f"{path}:{line}" if line else path
        super().__init__(f"{place}: {field}: {problem}" if field else f"{place}: {problem}")
        self.path = path
        self.line = line
        self.field = field
        self.problem = problem


class BadSpelling(MirageError):
    """A text is not one of Slurm's spellings of a duration, host list, state or the like."""

    def __init__(self, text: str, problem: str) -> None:
        shown = text if len(text) <= 60 else text[:57] + "..."
        super().__init__(f"{shown!r}: {problem}")
        self.text = text
        self.problem = problem


class ClusterUnavailable(MirageError):
    """The controller did not answer, or its answer cannot be trusted."""


class BackEndLost(ClusterUnavailable):
    """The server in front of the controller (slurmrestd) took a request and ended before it answered."""


class JobBlocked(ClusterUnavailable):
    """The controller lets this one job not be changed for now; the text has Slurm's words."""


class SubmissionRejected(MirageError):
    """The controller rejected a job; the text carries Slurm's own reason (such as ``PartitionTimeLimit``)."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class NotPermitted(MirageError):
    """The caller, or Mirage itself, may not do this; the text says who, what and what would permit it."""


class QuotaExceeded(MirageError):
    """A user would have more of something than one user may; the text says of what, and how much that is."""


class UnsupportedSlurm(MirageError):
    """This version of Slurm, or of its interface, is not one that Mirage can talk to; the text lists those."""


class UnknownChain(MirageError):
    """No single chain matches what the caller named."""


class ChainOver(MirageError):
    """The chain is done or stopped: nothing more can be asked of it."""


class StoreUnavailable(MirageError):
    """The database cannot be written or read now; nothing is half-written. The text says where and what to do."""


class LeadershipLost(StoreUnavailable):
    """Another daemon leads by now: nothing of ours is written; the text names it."""


class UnknownJob(MirageError):
    """The cluster does not know such a job id, or no longer."""


class ArtifactMismatch(MirageError):
    """A trained model is damaged, or is not made for what it is asked: ``where`` names the file or directory."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem


class PluginNotFound(MirageError):
    """No such predictor is installed; the text lists those that are."""


class MissingExtra(MirageError):
    """An optional package is not installed; the text names the extra that brings it."""

    def __init__(self, feature: str, extra: str, package: str = "mirage-slurm") -> None:
        super().__init__(f"{feature} needs an optional package: pip install '{package}[{extra}]'")
        self.extra = extra
