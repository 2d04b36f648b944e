"""On a real Slurm, a node whose prolog fails costs a link, not the chain: Slurm cancels the job in root's name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from conftest import opened, started
from user_shell import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from user_shell import Shell

PROLOG = """#!/bin/sh
# Fails on the node of the second job that starts.
mkdir FOLDER/first 2>/dev/null && exit 0
mkdir FOLDER/second 2>/dev/null && exit 1
exit 0
"""
JOB = "-p cpu -N1 --exclusive -t 20 -o /dev/null --wrap 'sleep 600'"
SUBMIT = f"mirage submit --name svc --links 3 --done-exit-code none {JOB}"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    prolog = tmp_path / "prolog"
    prolog.write_text(PROLOG.replace("FOLDER", str(tmp_path)))
    prolog.chmod(0o755)
    for testbed in started("prolog", 120, [f"Prolog={prolog}"]):
        if not testbed.privileged:
            pytest.skip("root's own jobs are not cancelled in the name of another")
        yield from opened(testbed)


@pytest.mark.xdist_group("prolog")
def test_a_failed_prolog_is_a_failure_of_the_node(shell: Shell) -> None:
    shell.type("mirage daemon >daemon.log 2>&1 &")
    shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
    shell.type(SUBMIT)
    done = "the end of the chain"
    shell.testbed.wait_until(lambda: not shell.says("mirage chains", "svc"), PATIENCE, done)
    chain = json.loads(shell.type("mirage chain show --json svc"))
    assert chain["status"] == "done", shell.type("mirage chain log svc")
    assert [link["job_state"] for link in chain["links"]] == ["COMPLETED", "BOOT_FAIL", "COMPLETED", "COMPLETED"]
