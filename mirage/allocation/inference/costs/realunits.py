"""Real units of the profiler in option notation: ``cpu2=threads:2``, ``gpu=cuda:0``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirage.domain.errors import MirageError

SPELLING = re.compile(r"(?P<kind>[A-Za-z0-9._-]+)=(?P<device>threads|cuda):(?P<number>\d{1,4})")


class BadUnit(MirageError):
    """A unit that is not in the form NAME=threads:N or NAME=cuda:N."""


@dataclass(frozen=True, slots=True)
class RealUnit:
    """Threads of this machine, or a CUDA device (an instance of MIG is one by CUDA_VISIBLE_DEVICES)."""

    kind: str
    device: str
    """``threads`` or ``cuda``."""
    number: int
    """Number of threads, or index of the device."""

    def __str__(self) -> str:
        return f"{self.device}:{self.number}"


def parse_unit(text: str) -> RealUnit:
    """Parse a unit. Raises ``BadUnit``."""
    found = SPELLING.fullmatch(text)
    if found is None or (found["device"] == "threads" and int(found["number"]) == 0):
        raise BadUnit(
            f"invalid unit {text!r}; expected NAME=threads:N (at least 1) or NAME=cuda:N, as cpu2=threads:2"
        )
    return RealUnit(found["kind"], found["device"], int(found["number"]))
