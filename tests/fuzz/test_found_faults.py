"""Input on which a reader once did what it must not: ``make fuzz`` found it, and it stays read."""

from __future__ import annotations

import math
import struct
from typing import Any

import fuzz_models
import pytest
from own_gateway import CONFIG
from recorded import MARK, rest
from targets import TARGETS

BY_NAME = {target.name: target for target in TARGETS}
MANY_DIGITS = "9" * 5_000
"""More than ``int`` takes."""

DEEP = "[" * 3_000
"""Deeper than ``json`` reads: it raises ``RecursionError``."""
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
    ("task file", f"task = {DEEP}".encode()),
    ("task file", f"[[task]]\ndevices = {MANY_DIGITS}\n".encode()),
    ("configuration of a gateway", f"model = {DEEP}".encode()),
    ("scenario", f"load = {MANY_DIGITS}\n".encode()),
    ("tasks, mix", f"count = {MANY_DIGITS}\n".encode()),
    ("tasks, mix of what was measured", b'count = 9999999999999999999999999999995\narrival = "bursts"\n'),
    ("journal of tasks", b'{"entry": []}\n'),
    ("frames", struct.pack("<IQ", len(DEEP), 0) + DEEP.encode()),
    ("gateway: frames of a worker", [{"say": "end", "number": math.inf}]),
    ("gateway: frames of a worker", [{"say": "end", "number": 0, "status": [], "why": "no"}]),
    ("gateway: what a worker has loaded", {"scale": {}}),
    ("gateway: what a worker has loaded", {"other": {"inputs": [], "outputs": []}}),
    ("answer to a load", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
    ("answer to a load", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"),
    ("kept costs", b"\x80\n"),
    ("kept costs", b'{"shape": [1], "cost": {"cycles": "x"}}\n'),
    ("manifest of a predictor", fuzz_models.PREDICTED | {"files": None}),
    ("manifest of DAS", fuzz_models.DAS | {"files": "das"}),
    ("manifest of DAS", fuzz_models.DAS | {"schema_hash": {}}),
    ("manifest of RELMAS", fuzz_models.AGENT | {"schema_hash": {}}),
    ("manifest of a table", fuzz_models.TABLED | {"chunks": "v2"}),
    ("manifest of a table", fuzz_models.TABLED | {"schema": {}}),
    ("array of a chunk", b"no array"),
    ("stored: journal", {"details": 1}),
    ("stored: snapshots", {"document": 1}),
    ("stored: waits", {"start": "p"}),
    ("stored: jobs", {"limit": math.inf}),
    ("stored: chains, progress", DEEP),
    ("snapshot's head", None),
    ("snapshot's head", {"snapshot": {}, "columns": None}),
    ("recording", b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 20),
    ("recording, changed", []),
    ("client: body", DEEP.encode()),
    ("client: events", f"data: {DEEP}\n\n"),
    ("client: chain", {"links": 1}),
    ("client: chain", {"not_before": "never"}),
    ("client: address", "http://[:80"),
    ("clock, changed", {"t0": 0, "rate": math.inf}),
    ("numbers", MANY_DIGITS),
    ("instant", MANY_DIGITS),
    ("command line of submit", f"--grace={MANY_DIGITS}\njob.sh"),
    ("versions that slurmrestd offers", f"/slurm/v{MANY_DIGITS}.0.1/jobs"),
    ("configuration of a gateway", CONFIG.replace("scale.onnx", "x" * 5_000).encode()),
    ("doctor: findings", "SLURM_VERSION = 24.11.5\nMinJobAge = \n"),
]


@pytest.mark.parametrize(("name", "given"), FOUND, ids=lambda value: str(value)[:40])
def test_what_was_found_once_is_taken_or_refused(name: str, given: object) -> None:
    BY_NAME[name].check(given)
