"""The controller's time, out of what Slurm's versions have answered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirage.backends.cluster_queries import cli_controller_time, rest_controller_time
from mirage.backends.execution import CommandRunner
from mirage.domain.errors import ClusterUnavailable

ASSETS = Path(__file__).resolve().parents[1] / "assets"


class Asked:
    """slurmrestd, as far as one answer goes."""

    def __init__(self, body: object) -> None:
        self.body = body

    def ask(self, method: str, path: str) -> Asked:
        assert (method, path) == ("GET", "diag")
        return self


@pytest.mark.parametrize("file", sorted(ASSETS.glob("*/rest/v*/diag.json")), ids=lambda file: file.parts[-4:-1])
def test_recorded_answers_of_slurmrestd_have_it(file: Path) -> None:
    told = rest_controller_time(Asked(json.loads(file.read_text())))  # type: ignore[arg-type]
    assert 1_790_000_000 < told < 1_800_000_000, "when it was recorded"


@pytest.mark.parametrize(
    "body", [None, [], {}, {"statistics": {}}, {"statistics": {"req_time": {"number": "x"}}}, {"statistics": "7"}]
)
def test_answer_without_it_is_none(body: object) -> None:
    with pytest.raises(ClusterUnavailable):
        rest_controller_time(Asked(body))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "answers"),
    [
        ("echo 'sdiag output at Sat Nov 21 15:42:42 2026 (1795275762)'", True),
        ("echo nothing", False),
        ("echo 'access denied' >&2; exit 1", False),
    ],
)
def test_sdiag_tells_it_or_the_controller_does_not_answer(script: str, answers: bool, tmp_path: Path) -> None:
    sdiag = tmp_path / "sdiag"
    sdiag.write_text(f"#!/bin/sh\n{script}\n")
    sdiag.chmod(0o755)
    commands = CommandRunner({"PATH": str(tmp_path) + ":/usr/bin:/bin"}, 30.0)
    if answers:
        assert cli_controller_time(commands) == 1_795_275_762
    else:
        with pytest.raises(ClusterUnavailable):
            cli_controller_time(commands)
