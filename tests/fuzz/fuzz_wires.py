"""Messages between programs, and users' command lines and small files."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzing import Beside, Target
from recorded import printed

from mirage.allocation.inference.serving.plan import address_of
from mirage.api.taskfiles import read_state
from mirage.backends.agent_requests import AgentRequest, AgentResponse, Verdict
from mirage.backends.file_check import Viewer
from mirage.bench.recordings import read_recording
from mirage.cli.arguments import numbers, parse_instant
from mirage.cli.chain_request import read_command_line
from mirage.cli.chainoptions import chain_document
from mirage.client.address import Address
from mirage.client.client import read_events
from mirage.client.documents import Chain
from mirage.client.errors import ClientError
from mirage.client.records import read
from mirage.client.transport import Transport
from mirage.control.clocks import read_clock
from mirage.daemon.brief import read_calls
from mirage.daemon.doctor.finding import read_settings
from mirage.daemon.doctor.slurm_settings import check_settings
from mirage.daemon.state_directory import read_beat
from mirage.domain.chain import Steering
from mirage.domain.job import JobId, JobRequest
from mirage.notifications.channels import Webhook
from mirage.slurm.duration import parse_fine

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDINGS = Path(__file__).resolve().parents[1] / "simulator" / "recordings"
RECORDING = json.loads(gzip.decompress((RECORDINGS / "nice.json.gz").read_bytes()))
ORDER = AgentRequest("o1", "ada", 1_700_000_000, submit=JobRequest("svc", "#!/bin/sh\nsrun x\n", 3_600))
ANSWER = AgentResponse(Verdict.REJECTED, JobId(7), "no", "sbatch: error: no")
CHAIN = {
    "id": "svc", "name": "svc", "owner": "ada", "status": "active", "reason": "",
    "links": [{"index": 1, "state": "running", "job_id": "7", "start": "2026-01-01T00:00:00Z"}],
    "created": "2026-01-01T00:00:00+00:00",
}  # fmt: skip
TASKS = b"""{"version": 1, "time": 1700000000, "over": false, "links": [
{"job": 7, "began": 1, "nodes": {"n1": [[0, "gpu"]]}}],
"tasks": [{"id": "a", "state": "running", "why": "", "attempts": 1}],
"lanes": {"n1": [{"task": "a", "attempt": 1, "share": 1.0, "start": 1, "end": null}]}}"""
BEAT = b'{"pid": 1, "time": 1700000000, "cycle": 3, "sentence": "nothing to do"}'


def of_client(kind: type[Any]) -> Callable[[Any], object]:
    return lambda document: read(kind, document)


def answered(content: bytes) -> None:
    """Of a daemon, to this client."""
    transport = Transport(Address(socket="/run/x"))
    for status in (200, 404):
        try:
            transport._answer(status, content)
        except ClientError:
            continue


def recording(document: Any) -> None:
    Beside(read_recording, "r.json.gz")(gzip.compress(json.dumps(document).encode()))


def settings(text: str) -> None:
    list(check_settings(read_settings(text), "slurm 24.11.5", 60, Steering.HOLD))


def words(line: str) -> None:
    found = read_command_line(line.split("\n"))
    chain_document(found.chain, "/home/ada", None)


def state(folder: Path) -> None:
    read_state(str(folder), Viewer("me", os.getuid(), own=True))


def webhook(path: Path) -> None:
    Webhook(path, ()).check()


TARGETS = (
    Target("order", AgentRequest.from_text, (ORDER.to_text(),)),
    Target("answer to an order", lambda it: AgentResponse.from_text(it, 2), (ANSWER.to_text(),)),
    Target("order, changed", lambda it: AgentRequest.from_text(json.dumps(it)), (json.loads(ORDER.to_text()),)),
    Target("client: body", answered, (b'{"detail": "no"}', b"[1, 2]"), (ClientError,)),
    Target(
        "client: events",
        lambda text: list(read_events(text.split("\n"))),
        ('id: 7\nevent: journal\ndata: {"a": 1}\n\ndata: x\ndata: y\n\n',),
        (),
    ),
    Target("client: chain", of_client(Chain), (CHAIN,), (ClientError,)),
    Target("client: address", Address.parse, ("http://h:80", "https://h", "unix:/x", "/x"), (ClientError,)),
    Target(
        "recording",
        Beside(read_recording, "r.json.gz"),
        [(RECORDINGS / "nice.json.gz").read_bytes()],
        names="r.json.gz",
    ),
    Target("recording, changed", recording, (RECORDING,), names="r.json.gz"),
    Target("doctor: findings", settings, printed("scontrol.config")),
    Target(
        "command line of submit",
        words,
        (
            "--time=2-0\n--begin=now+1hour\n--links=3\n--grace=120\n--retries=2\n--aim=overlap=30m\n--max-overlap=2h\njob.sh\nx",
            "-N2\n--wrap\nsleep 1",
        ),
    ),
    Target(
        "instant",
        lambda text: parse_instant(text, "--start"),
        ("2023-02-01", "2023-02-01T12:00+01:00", "1700000000"),
    ),
    Target("numbers", lambda text: numbers("--nodes", text), ("1,2,4",)),
    Target("fine duration", parse_fine, ("15ms", "2m", "1.5 h")),
    Target("address of a gateway to listen at", address_of, ("127.0.0.1:8800", "[::1]:0"), (ValueError,)),
    Target("state of tasks", Beside(state, "status.json", folder=True), (TASKS,)),
    Target(
        "calls", Beside(read_calls, "cycle.json", folder=True), (b'{"at": 1.5, "every": 600, "daily": 0}',), ()
    ),
    Target("heartbeat", Beside(read_beat, "beat.json"), (BEAT,), ()),
    Target("webhook", Beside(webhook, "url"), (b"https://chat.example/hook?x=1\n",)),
    Target(
        "clock, changed", lambda it: Beside(read_clock, "c.json")(json.dumps(it)).now(), ({"t0": 1.5, "rate": 60},)
    ),
)
