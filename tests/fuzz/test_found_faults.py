"""Input on which a reader once did what it must not: ``make fuzz`` found it, and it stays read."""

from __future__ import annotations

import pytest
from recorded import MARK
from targets import TARGETS

BY_NAME = {target.name: target for target in TARGETS}
MANY_DIGITS = "9" * 5_000
"""More than ``int`` takes."""

FOUND = [
    ("sinfo", f"PARTITION\x1fSTATE\x1fNODES{MARK}\ncpu\x1fidle\x1f{MANY_DIGITS}{MARK}\n"),
    ("reservations", f"ReservationName=r StartTime={MANY_DIGITS} EndTime=1 Nodes=n1\n"),
    ("doctor: clock", f"sdiag output at Tue ({MANY_DIGITS})\n"),
    ("doctor: version", f"slurm {MANY_DIGITS}.1"),
]


@pytest.mark.parametrize(("name", "given"), FOUND, ids=lambda value: str(value)[:40])
def test_what_was_found_once_is_taken_or_refused(name: str, given: object) -> None:
    BY_NAME[name].check(given)
