"""A slurmrestd with scripted answers, and the backend that uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from backends.fake_slurmrestd import FakeSlurmrestd, slurmrestd

from mirage.backends.rest import RestCluster
from mirage.backends.restactuator import RestActuator, TokenDirectory
from mirage.backends.restclient import Credentials, RestAddress, RestClient
from mirage.domain.job import BatchScript, JobRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


ASSETS = Path(__file__).resolve().parents[1] / "assets"
RECORDED = ASSETS / "22.05.8" / "rest" / "v0.0.38"
EMPTY: dict[str, Any] = {"errors": [], "jobs": [], "nodes": []}
REQUEST = JobRequest("link", "alice", 3_600, tag="mirage:c:1", batch=BatchScript("#!/bin/sh\nsleep 1\n"))


class Noon:
    def now(self) -> int:
        return 1_700_000_000


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture
def fake() -> Iterator[FakeSlurmrestd]:
    with slurmrestd() as running:
        running.answers = {
            "/slurm/v0.0.38/ping": {"errors": [], "pings": []},
            "/slurm/v0.0.38/jobs": EMPTY,
            "/slurm/v0.0.38/nodes": EMPTY,
            "/slurmdb/v0.0.38/jobs": EMPTY,
        }
        yield running


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "alice.jwt"
    file.write_text("a.good.token\n")
    return file


@pytest.fixture
def cluster(fake: FakeSlurmrestd, token: Path) -> RestCluster:
    return RestCluster(client(fake, token), Noon())


@pytest.fixture
def actuator(fake: FakeSlurmrestd, token: Path) -> RestActuator:
    return RestActuator(RestAddress.parse(fake.address), TokenDirectory(token.parent), Noon(), timeout=30)


def client(fake: FakeSlurmrestd, token: Path, timeout: float = 30) -> RestClient:
    return RestClient(RestAddress.parse(fake.address), Credentials("alice", str(token)), timeout)


def half(handler: Any) -> None:
    handler.reply(200, b'{"errors": [], "jobs": [', length=5_000)
