"""The sudo mode with programs that play sudo: every way in which it can go wrong."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes import chain

from mirage.backends.agent_requests import AgentRequest
from mirage.backends.sudo import Helper, SudoActuator
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected
from mirage.domain.job import JobId, JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable

SOMEBODY = next(person.pw_name for person in pwd.getpwall() if person.pw_uid != 0)
GREETING = 'echo "mirage-act 1"'
DONE = """echo '{"verdict":"DONE","job_id":42,"reason":"","text":"","files":[]}'"""


@pytest.fixture
def sudo(tmp_path: Path) -> Callable[..., SudoActuator]:
    """A sudo that runs these lines of shell instead; its arguments and input are left in files."""

    def make(*lines: str, answer: float = 60.0) -> SudoActuator:
        program = tmp_path / "sudo"
        start = f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/arguments; env >{tmp_path}/environment\n'
        program.write_text(start + "\n".join(lines) + "\n")
        program.chmod(0o755)
        return SudoActuator(Helper("/opt/mirage-act", sudo=str(program), answer=answer))

    return make


def test_the_order_goes_in_and_the_answer_comes_out(sudo: Callable[..., SudoActuator], tmp_path: Path) -> None:
    request = chain().link_request(1)
    actuator = sudo(GREETING, f"cat >{tmp_path}/order", DONE)
    request = replace(request, user=SOMEBODY)
    assert actuator.submit(request) == 42
    order = AgentRequest.from_text((tmp_path / "order").read_text())
    assert order.act == request
    assert (tmp_path / "arguments").read_text().split() == ["-n", "-H", "-u", SOMEBODY, "--", "/opt/mirage-act"]
    names = {line.split("=")[0] for line in (tmp_path / "environment").read_text().splitlines()}
    assert names <= {"PATH", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_"}


def test_a_refusal_of_slurm_is_one(sudo: Callable[..., SudoActuator]) -> None:
    answer = json.dumps(
        {"verdict": "REJECTED", "job_id": 0, "reason": "QOSLimit", "text": "QOSLimit: no", "files": []}
    )
    with pytest.raises(SubmissionRejected, match="QOSLimit: no"):
        sudo(GREETING, "cat >/dev/null", f"echo '{answer}'").submit(JobRequest("svc", SOMEBODY, 60))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["echo 'sudo: a password is required' >&2", "exit 1"], "sudo: a password is required"),
        (["echo \"Sorry, user mirage is not allowed to execute '/opt/mirage-act'\" >&2; exit 1"], "Sorry"),
        (["exit 127"], "no word from the helper"),
        (["echo Welcome; cat >/dev/null", DONE], "no word from the helper"),
    ],
)
def test_without_the_greeting_nothing_has_happened(
    sudo: Callable[..., SudoActuator], lines: list[str], words: str
) -> None:
    with pytest.raises(NotPermitted, match=f"sudo cannot act for {SOMEBODY}: .*{words}"):
        sudo(*lines).cancel(JobId(1), SOMEBODY)


@pytest.mark.parametrize(
    "lines",
    [
        [GREETING, "echo 'Traceback: oops' >&2", "exit 1"],
        [GREETING, "kill -9 $$"],
        [GREETING, "cat >/dev/null", """echo '{"verdict":"DO'"""],
        [GREETING, "cat >/dev/null", DONE, DONE],
    ],
)
def test_after_the_greeting_anything_may_have_happened(
    sudo: Callable[..., SudoActuator], lines: list[str]
) -> None:
    with pytest.raises(ClusterUnavailable, match="cancel job 1"):
        sudo(*lines).cancel(JobId(1), SOMEBODY)


def test_a_helper_that_hangs_is_given_up(sudo: Callable[..., SudoActuator]) -> None:
    with pytest.raises(ClusterUnavailable, match=r"has not answered for 0\.2 s"):
        sudo(GREETING, "exec sleep 600", answer=0.2).cancel(JobId(1), SOMEBODY)


def test_helpers_that_their_user_keeps_are_few(sudo: Callable[..., SudoActuator], tmp_path: Path) -> None:
    """Where sudo is root's the daemon cannot end it: here one that no signal ends in time."""
    actuator = sudo(GREETING, "exec sleep 600", answer=0.2)
    actuator._left[SOMEBODY] = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    left = list(actuator._left[SOMEBODY])
    with pytest.raises(NotPermitted, match=str(left[0].pid)):
        actuator.cancel(JobId(1), SOMEBODY)
    assert not (tmp_path / "arguments").exists()
    left[0].kill()
    left[0].wait()
    with pytest.raises(ClusterUnavailable):
        actuator.cancel(JobId(1), SOMEBODY)
    left[1].kill()
    left[1].wait()


def test_a_helper_starts_no_more_processes_than_its_bound(
    sudo: Callable[..., SudoActuator], tmp_path: Path
) -> None:
    sudo(f"cat /proc/self/limits >{tmp_path}/limits", GREETING, DONE).cancel(JobId(1), SOMEBODY)
    line = next(line for line in (tmp_path / "limits").read_text().splitlines() if "processes" in line)
    assert line.split()[2:4] == ["1024", "1024"]


STOPPED = """
import ctypes, os, signal
from mirage.cli.act import _close_off
_close_off()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)  # PR_GET_DUMPABLE
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_helper_that_its_user_stops_ends_with_sudo() -> None:
    """Only root can trace it."""
    around = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STOPPED!r}])"
    parent = subprocess.Popen([sys.executable, "-c", around], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "0\n"
    (helper,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.kill()
    parent.wait()
    assert parent.stdout.read() == "", "its end closes the pipe"
    parent.stdout.close()
    assert not Path(f"/proc/{helper}/exe").exists()


def test_no_sudo_no_act(tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="cannot act"):
        SudoActuator(Helper("/opt/mirage-act", sudo=str(tmp_path / "none"))).cancel(JobId(1), SOMEBODY)


@pytest.mark.parametrize("owner", ["root", "#0", "#1000", "-i", "no such person", ""])
def test_sudo_is_not_even_asked(sudo: Callable[..., SudoActuator], tmp_path: Path, owner: str) -> None:
    with pytest.raises(NotPermitted):
        sudo(GREETING, DONE).cancel(JobId(1), owner)
    assert not (tmp_path / "arguments").exists()


def run_helper(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mirage.cli.act", *arguments],
        input="nonsense",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_helper_takes_no_arguments() -> None:
    assert "takes no arguments" in run_helper("--comment=x").stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be root")
def test_the_helper_acts_for_no_root() -> None:
    done = run_helper()
    assert done.returncode == 1
    assert done.stdout == ""
    assert "only as an ordinary user" in done.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="needs an ordinary user")
def test_the_helper_refuses_nonsense() -> None:
    greeting, answer = run_helper().stdout.splitlines()
    assert greeting == "mirage-act 1"
    assert json.loads(answer)["verdict"] == "NOT_PERMITTED"
