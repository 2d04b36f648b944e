"""Input on which a reader once did what it must not: ``make fuzz`` found it, and it stays read."""

from __future__ import annotations

from typing import Any

import pytest
from recorded import MARK, rest
from targets import TARGETS

BY_NAME = {target.name: target for target in TARGETS}
MANY_DIGITS = "9" * 5_000
"""More than ``int`` takes."""

DEEP = "[" * 3_000
"""More than ``json`` takes before it gives up with ``RecursionError``."""
SWF_ROW = "1 0 5 100 8 -1 -1 8 200 -1 1 3 1 -1 1 -1 -1 -1\n"
BEYOND = 10**20
"""More than a column of 64 bits holds."""


def past(version: int, **fields: Any) -> Any:
    """The first past job that was recorded, with other ``fields``."""
    record = rest("db.jobs")[version]["jobs"][0]
    return {"jobs": [record | fields]}


def queued(version: int, **fields: Any) -> Any:
    """The same of one that waits."""
    record = next(job for job in rest("jobs", 99)[version]["jobs"] if "PENDING" in job["job_state"])
    return {"jobs": [record | fields]}


FOUND = [
    ("sinfo", f"PARTITION\x1fSTATE\x1fNODES{MARK}\ncpu\x1fidle\x1f{MANY_DIGITS}{MARK}\n"),
    ("reservations", f"ReservationName=r StartTime={MANY_DIGITS} EndTime=1 Nodes=n1\n"),
    ("doctor: clock", f"sdiag output at Tue ({MANY_DIGITS})\n"),
    ("doctor: version", f"slurm {MANY_DIGITS}.1"),
    ("jobs v0.0.36", queued(36, job_id={})),
    ("jobs v0.0.36", queued(36, exit_code={})),
    ("jobs v0.0.40", queued(40, job_id=BEYOND)),
    ("past jobs v0.0.36", past(36, exit_code={"signal": True})),
    ("past jobs v0.0.40", past(40, tres={"allocated": [{"type": "cpu", "count": 2**64}], "requested": []})),
    ("past jobs v0.0.45", past(45, tres={"allocated": [[]], "requested": []})),
    ("trace, SWF", f"; MaxProcs: {MANY_DIGITS}\n{SWF_ROW}".encode()),
    ("public keys", DEEP.encode()),
    ("policy", f"users = {DEEP}".encode()),
]


@pytest.mark.parametrize(("name", "given"), FOUND, ids=lambda value: str(value)[:40])
def test_what_was_found_once_is_taken_or_refused(name: str, given: object) -> None:
    BY_NAME[name].check(given)
