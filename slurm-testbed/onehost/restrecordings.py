"""Recorded answers of slurmrestd, in every API version that it offers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onehost import clock
from onehost.slurmcommands import token
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from onehost.layout import Layout
    from onehost.recorder import Recorder

Json = dict[str, Any]
ASKED_JOBS = ("running", "running-gpus-total", "held-link", "array-pending", "running-het", "completed")
LISTS_WITH_LISTS = 40
"""From v0.0.40 on numbers are ``{set, number}`` and environments are lists."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as ``user`` with a valid token by default."""

    name: str
    path: str
    method: str = "GET"
    body: Json | None = None
    user: str = "alice"
    credentials: str = "good"
    """``good``, ``bad``, ``expired`` or ``none``."""


@dataclass(slots=True)
class Rest:
    """A running slurmrestd and tokens for it."""

    address: str
    layout: Layout
    tokens: dict[str, str] = field(default_factory=dict)

    def headers(self, request: Request) -> dict[str, str]:
        """The authentication headers."""
        if request.credentials == "none":
            return {}
        if request.user not in self.tokens:
            self.tokens[request.user] = token(self.layout, request.user, 86_400)
        proof = self.tokens[request.user]
        if request.credentials == "bad":
            proof = proof[:-8] + "AAAAAAAA"
        if request.credentials == "expired":
            proof = self.expired(request.user)
        return {"X-SLURM-USER-NAME": request.user, "X-SLURM-USER-TOKEN": proof}

    def expired(self, user: str) -> str:
        """A token whose lifetime of one second of Slurm's time is over."""
        proof, issued = token(self.layout, user, 1), clock.now(self.layout)
        wait_until(lambda: clock.now(self.layout) > issued + 2, 10, "the end of a token")
        return proof

    def ask(self, request: Request) -> tuple[int, str, bytes]:
        """Send a request; status, content type and body."""
        body = None if request.body is None else json.dumps(request.body).encode()
        headers = {**self.headers(request), "Content-Type": "application/json"}
        question = urllib.request.Request(  # noqa: S310 - an address of ours
            self.address + request.path, body, headers, method=request.method
        )
        try:
            with urllib.request.urlopen(question, timeout=60) as answer:  # noqa: S310
                return answer.status, answer.headers.get("Content-Type", ""), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("Content-Type", ""), error.read()


def versions(rest: Rest) -> list[str]:
    """The offered versions, oldest first, from slurmrestd's description."""
    _, _, body = rest.ask(Request("", "/openapi/v3"))
    return sorted({path.split("/")[2] for path in json.loads(body)["paths"] if path.startswith("/slurm/v")})


def requests_of(version: str, jobs: dict[str, str]) -> list[Request]:
    """All requests of one version; those that change the state come last."""
    base, accounting = f"/slurm/{version}", f"/slurmdb/{version}"
    plain = [
        Request(name, f"{base}/{name}/")
        for name in ("ping", "diag", "partitions", "nodes", "jobs", "reservations")
    ]
    one = [Request(f"job.{name}", f"{base}/job/{first_id(jobs[name])}") for name in ASKED_JOBS]
    history = [Request(f"db.job.{name}", f"{accounting}/job/{first_id(jobs[name])}") for name in ASKED_JOBS]
    return [
        *plain,
        *one,
        Request("db.jobs", f"{accounting}/jobs?start_time=uts1000000000&skip_steps=true"),
        *history,
        Request("db.associations", f"{accounting}/associations"),
        Request("db.diag", f"{accounting}/diag"),
        Request("error.no-token", f"{base}/ping", credentials="none"),
        Request("error.bad-token", f"{base}/ping", credentials="bad"),
        Request("error.expired-token", f"{base}/ping", credentials="expired"),
        Request("error.unknown-path", f"{base}/nothing"),
        Request("error.unknown-version", "/slurm/v0.0.1/ping"),
        Request("error.unknown-job", f"{base}/job/999999"),
        Request("error.no-job", f"{base}/job/none"),
        Request("error.cancel-unknown", f"{base}/job/999999", "DELETE"),
        Request("error.cancel-foreign", f"{base}/job/{jobs['priority']}", "DELETE"),
        Request("error.cancel-ended", f"{base}/job/{jobs['completed']}", "DELETE"),
        *(refused(name, version, change) for name, change in REFUSED.items()),
        *changes(base, version, jobs),
    ]


REFUSED: dict[str, Json] = {
    "partition": {"partition": "nowhere"},
    "account": {"account": "nobody"},
    "limit": {"partition": "cpu", "time_limit": 4 * 1440},
    "gres": {"partition": "a100", "gres": "gpu:h100:1"},
    "dependency": {"partition": "cpu", "dependency": "afterok:999999"},
    "field": {"partition": "cpu", "no_such_field": 1},
}


def refused(name: str, version: str, change: Json) -> Request:
    """A submission that Slurm rejects."""
    return Request(f"error.submit-{name}", f"/slurm/{version}/job/submit", "POST", submission(version, change))


def changes(base: str, version: str, jobs: dict[str, str]) -> list[Request]:
    """An accepted submission, and changes of a pending job."""
    held: Json = {
        "partition": "a100",
        "nodes": 2,
        "gres": "gpu:a100:4",
        "time_limit": 90,
        "comment": "mirage:abc:3",
    }
    held |= {"hold": True, "nice": 7}
    job = f"{base}/job/{first_id(jobs['held-by-user'])}"
    as_number: Json = {"set": True, "number": 9} if number(version) >= LISTS_WITH_LISTS else {}
    return [
        Request("submit", f"{base}/job/submit", "POST", submission(version, held)),
        Request("update.nice", job, "POST", {"nice": 9}),
        Request("update.priority", job, "POST", {"priority": as_number or 9}),
        Request("cancel", f"{base}/job/{first_id(jobs['name-empty'])}", "DELETE"),
    ]


def submission(version: str, change: Json) -> Json:
    """A job in the format of a version; ``change`` is in the format of the oldest."""
    job: Json = {"name": "by-rest", "current_working_directory": "/tmp", "standard_output": "/dev/null", **change}  # noqa: S108
    environment = {"PATH": "/usr/bin:/bin"}
    if number(version) < LISTS_WITH_LISTS:
        return {"script": "#!/bin/bash\nsleep 60\n", "job": job | {"environment": environment}}
    job["environment"] = [f"{key}={value}" for key, value in environment.items()]
    if "nodes" in job:
        job["minimum_nodes"] = job.pop("nodes")
    if "gres" in job:
        job["tres_per_node"] = f"gres/{job.pop('gres')}"
    if "time_limit" in job:
        job["time_limit"] = {"set": True, "number": job["time_limit"]}
    return {"script": "#!/bin/bash\nsleep 60\n", "job": job}


def number(version: str) -> int:
    """The number of a version: 38 for ``v0.0.38``."""
    return int(version.rpartition(".")[2])


def first_id(job: str) -> str:
    """The id itself; ``sbatch --parsable`` may add the cluster."""
    return job.partition(";")[0]


def record_rest(address: str, jobs: dict[str, str], layout: Layout, recorder: Recorder) -> list[str]:
    """Record every request in every version; returns the versions."""
    rest = Rest(address, layout)
    offered = versions(rest)
    for version in offered:
        for request in requests_of(version, jobs):
            status, content, body = rest.ask(request)
            about = {
                "method": request.method,
                "path": request.path,
                "body": request.body,
                "user": request.user,
                "credentials": request.credentials,
                "status": status,
                "content_type": content,
            }
            recorder.keep(f"rest/{version}/{request.name}.json", compact(body), about)
    return offered


def compact(body: bytes) -> bytes:
    """Compact JSON with one value per line at the first level; other bodies unchanged."""
    try:
        document = json.loads(body)
    except ValueError:
        return body
    if not isinstance(document, dict):
        return body
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in document.items()]
    return ("{" + ",\n".join(lines) + "}\n").encode()
