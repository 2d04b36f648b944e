"""slurmrestd's lists of errors: what went wrong, in Slurm's words and by what the caller can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable, MirageError
from mirage.slurm import wording

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.slurm.rest.fields import Record

_UNSPECIFIED = -1
_EMPTY_RESULT = 9003
"""ESLURM_REST_EMPTY_RESULT; up to v0.0.37 only its sentence is there."""
_NOT_UNDERSTOOD = range(9000, 9300)
"""ESLURM_REST_*, ESLURM_DATA_*: what was sent is wrong."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The errors with which slurmrestd or Slurm rejected a request."""

    text: str
    """Slurm's sentences, a line each, those that come twice once."""
    numbers: tuple[int, ...]
    """Slurm's own (slurm_errno.h); v0.0.36 gives 0, except for submissions."""

    @classmethod
    def read(cls, errors: Iterable[Record]) -> Faults:
        """From a list of errors of any version: the number is ``error_number`` or ``error_code``."""
        entries = tuple(errors)
        sentences = [entry[key] for entry in entries for key in _SENTENCES if isinstance(entry.get(key), str)]
        numbers = [entry.get("error_number", entry.get("error_code")) for entry in entries]
        return cls(
            "\n".join(dict.fromkeys(sentences)) or "no reason given",
            tuple(number for number in numbers if type(number) is int),
        )

    @property
    def line(self) -> str:
        """All sentences joined to one line of bounded length."""
        return wording.one_line(self.text)

    def of_submission(self, what: str) -> MirageError:
        """The error for a job that was not submitted."""
        if self._unanswered:
            return ClusterUnavailable(f"{what}: {self.line}")
        return wording.refusal(f"slurmrestd: error: {self.text}", what)

    def of_act(self, what: str) -> MirageError:
        """The error for what was not done to a job; ``what`` names the act and the job."""
        if self._unanswered:
            return ClusterUnavailable(f"{what}: {self.line}")
        return wording.refused_act(self.text, what)

    @property
    def found_nothing(self) -> bool:
        """Whether it is only that nothing matches: accounting answers so instead of with an empty list."""
        return _EMPTY_RESULT in self.numbers or "Nothing found" in self.text

    @property
    def not_understood(self) -> bool:
        """Whether what was sent is wrong."""
        return any(number in _NOT_UNDERSTOOD for number in self.numbers)

    @property
    def already_ended(self) -> bool:
        """Whether all that stands against it is that the job has ended."""
        return wording.already_ended(self.text)

    @property
    def _unanswered(self) -> bool:
        """Whether it was not the job that was judged: also a bad token, of which Slurm 22.05 says only -1."""
        return wording.unreachable(self.text) or (not self.not_understood and _UNSPECIFIED in self.numbers)


_SENTENCES = ("error", "description")
