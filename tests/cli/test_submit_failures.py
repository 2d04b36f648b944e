"""`mirage submit`: what follows a failure, and what it says where there is nothing to work in."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from cli.submit_world import folder, submit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder"]

RETRY = {"recovery": "retry"}


@pytest.mark.parametrize(
    ("arguments", "failures"),
    [
        (("--retries=1",), {"exit": RETRY | {"retries": 1}}),
        (("--retries=1", "--on-failure=retry"), {"exit": RETRY | {"retries": 1}}),
        (("--on-failure=exit=retry", "--retries=7"), {"exit": RETRY | {"retries": 7}}),
        (
            ("--retries=6", "--on-failure=exit=continue,node=retry,cancelled=retry"),
            {
                "exit": {"recovery": "continue"},
                "node": RETRY | {"retries": 6},
                "cancelled": RETRY | {"retries": 6},
            },
        ),
        (
            ("--retries=6", "--on-failure=node=stop"),
            {"exit": RETRY | {"retries": 6}, "node": {"recovery": "stop"}},
        ),
    ],
)
def test_retries_count_for_every_failure_that_is_tried_again(
    folder: Path, arguments: tuple[str, ...], failures: dict[str, Any]
) -> None:
    done = submit(folder, "--dry-run", "--json", *arguments, "train.sh")
    assert json.loads(done.stdout)["chain"]["failures"] == failures


def test_working_directory_that_is_gone_is_an_error_of_one_line(folder: Path) -> None:
    command = 'mkdir gone; cd gone; rmdir ../gone; exec "$0" -m mirage submit --dry-run --wrap pwd'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], check=False, cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mirage: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--done-file=$HOME/done", "--done-file=~/done", "--tasks-state=${WORK}/tasks"])
def test_path_that_a_shell_would_replace_is_refused_on_directive_lines(folder: Path, option: str) -> None:
    (folder / "lines.sh").write_text(f"#!/bin/sh\n#MIRAGE {option}\nexec true\n")
    done = submit(folder, "--dry-run", "--json", "lines.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert "lines.sh:2" in done.stderr
