"""Answers of slurmrestd, in every version of its API that was recorded."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from fuzzing import Target
from recorded import rest

from mirage.backends.restclient import RestAddress, RestResponse, _parsed
from mirage.slurm.rest import versions
from mirage.slurm.rest.answers import RestErrors
from mirage.slurm.rest.history import read_history, read_past_links, read_past_runs
from mirage.slurm.rest.queue import read_partitions, read_queue
from mirage.slurm.rest.versions import Kind, lift, with_partitions

Document = dict[str, Any]


def records(document: Any, name: str) -> list[Document]:
    """As ``backends.rest`` takes them; an answer without the list is rejected there."""
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, list) else []


def queue(version: int, document: Any) -> None:
    shape = partial(lift, Kind.JOB, version)
    read_queue(records(document, "jobs"), shape, str, {1, 2})
    read_queue(records(document, "jobs"), shape, str, columns=False)


def past(version: int, document: Any) -> None:
    shape = partial(lift, Kind.PAST_JOB, version)
    read_history(records(document, "jobs"), shape)
    read_past_runs(records(document, "jobs"), shape)
    read_past_links(records(document, "jobs"), shape, {1, 2})


def nodes(version: int, document: Any) -> None:
    found = records(document, "nodes")
    if version < 37:
        found = with_partitions(found, records(rest("partitions")[version], "partitions"))
    read_partitions(found, partial(lift, Kind.NODE, version))


def partitions(version: int, document: Any) -> None:
    with_partitions(records(rest("nodes")[version], "nodes"), records(document, "partitions"))


def errors(document: Any) -> None:
    answer = RestResponse(400, document if isinstance(document, dict) else {})
    found = RestErrors.read(answer.errors)
    str(found.line), found.of_submission("submit"), found.of_act("cancel 1"), found.found_nothing
    str(answer.unknown_path), str(found.already_ended)


def body(raw: bytes) -> None:
    found = _parsed(raw)
    assert found is None or isinstance(found, dict)


def each(name: str, file: str, read: Any) -> list[Target]:
    return [
        Target(f"{name} v0.0.{number}", partial(read, number), (answer,)) for number, answer in rest(file).items()
    ]


REFUSALS = ("error.submit-account", "error.no-job", "error.unknown-path", "error.cancel-foreign")
TARGETS = (
    *each("jobs", "jobs", queue),
    *each("past jobs", "db.jobs", past),
    *each("nodes", "nodes", nodes),
    Target("partitions v0.0.36", partial(partitions, 36), (rest("partitions")[36],)),
    Target("rejections of slurmrestd", errors, [found for name in REFUSALS for found in rest(name).values()]),
    Target("body of slurmrestd", body, [json.dumps(found).encode() for found in rest("ping").values()]),
    Target(
        "versions that slurmrestd offers",
        lambda text: versions.offered(text.split(" ")),
        ("/slurm/v0.0.38/jobs /slurm/v0.0.40/job/{id}",),
    ),
    Target(
        "address of slurmrestd",
        RestAddress.parse,
        ("http://head:6820", "https://head/proxy", "unix:/run/slurmrestd.sock", "http://[::1]:80"),
    ),
)
