"""The scripts of the how-to pages on a real Slurm: no step is lost or done twice, no request stays unanswered."""

from __future__ import annotations

import re
import signal
import sysconfig
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from user_shell import PATIENCE

if TYPE_CHECKING:
    from user_shell import Shell

TORCHRUN = """#!/bin/sh
PYTHONPATH={path} exec env -u LD_PRELOAD -u PYTHONDONTWRITEBYTECODE {python} -m torch.distributed.run "$@"
"""
"""On the machine's clock: the limits of torch's rendezvous are not meant for a clock sixty times as fast."""
VLLM = """#!/bin/sh
exec python3 standin.py "$4"
"""
"""``vllm serve MODEL --port PORT ...``"""
STANDIN = """
import os, re, sys
from pathlib import Path
text = Path("server.py").read_text().replace('("", 0)', f'("", {sys.argv[1]})')
text = re.sub(r"(?m)^(publish|take_over)\\(.*", "", text)
exec(compile(text, "server.py", "exec"))
"""
"""A server that knows nothing of Mirage: the example without its address and its ready file."""
SHORT = "--time=20 --signal=B:TERM@60 --grace 60"
STEPS = 30


def program(shell: Shell, name: str, text: str) -> None:
    file = shell.home / "bin" / name
    file.write_text(text)
    file.chmod(0o755)


def keep(shell: Shell, files: str, submit: str) -> None:
    """The files are copied, a daemon is started and the chain is submitted."""
    for command in (f"cp {files} .", "mirage daemon >daemon.log 2>&1 &"):
        shell.type(command)
    shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
    shell.type(submit)


def wait_for_end(shell: Shell) -> None:
    done = "the end of the chain"
    shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), 2 * PATIENCE, done)


def steps(shell: Shell) -> list[tuple[int, int]]:
    """Links and steps, as the training has logged them."""
    file = shell.home / "steps.log"
    log = file.read_text() if file.exists() else ""
    return [(int(link), int(step)) for link, step in re.findall(r"^link (\d+) step (\d+)$", log, re.MULTILINE)]


@pytest.mark.parametrize(
    ("script", "nodes", "workers"), [("ddp.sh", 1, 2), ("ddp-nodes.sh", 2, 1)], ids=["one-node", "two-nodes"]
)
def test_ddp_training_loses_and_repeats_no_step(shell: Shell, script: str, nodes: int, workers: int) -> None:
    pytest.importorskip("torch")
    path = sysconfig.get_path("purelib")
    program(shell, "torchrun", TORCHRUN.format(path=path, python=shell.python))
    examples = "CHECKOUT/docs/examples"
    shell.environment |= {"STEPS": str(STEPS), "SECONDS_A_STEP": "0.5", "WORKERS": str(workers)}
    shell.environment["MASTER_ADDR"] = "127.0.0.1"  # all nodes are this machine
    signal_option = f"--signal={'B:' if nodes == 1 else ''}USR1@600"
    keep(
        shell,
        f"{examples}/{script} {examples}/ddp.py {examples}/torchrun.sh",
        f"mirage submit --time=240 --nodes={nodes} {signal_option} {script}",
    )
    shell.testbed.wait_until(lambda: len(steps(shell)) >= 5, PATIENCE, "the first steps")
    [job] = shell.testbed.ask("squeue", "-h", "-t", "RUNNING", "-n", "ddp", "-o", "%A").split()
    shell.testbed.ask(
        "scontrol", "update", f"JobId={job}", "EndTime=now+12minutes"
    )  # warned a minute or two later
    wait_for_end(shell)
    done = steps(shell)
    log = (shell.home / "steps.log").read_text()
    assert [step for _, step in done] == list(range(1, STEPS + 1)), log
    links = sorted({link for link, _ in done})
    assert len(links) >= 2, log
    for before, after in pairwise(links):
        last = max(step for link, step in done if link == before)
        assert f"link {before} saved step {last} at the warning" in log
        assert f"link {after} starts after step {last}" in log


def answers(shell: Shell) -> list[int]:
    """The links that have answered, in the order of the requests."""
    log = shell.home / "answers.log"
    text = log.read_text() if log.exists() else ""
    return [int(link) for link in re.findall(r"^link (\d+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("name", ["server", "vllm"])
def test_every_request_is_answered_across_a_handover(shell: Shell, name: str) -> None:
    program(shell, "vllm", VLLM)
    (shell.home / "standin.py").write_text(STANDIN)
    examples = "CHECKOUT/docs/examples"
    files = " ".join(f"{examples}/{each}" for each in ("server.py", f"{name}.sh", "llm-ready.sh", "ask.py"))
    keep(shell, files, f"mirage submit --links 2 {SHORT} {name}.sh")
    shell.testbed.wait_until((shell.home / "address").exists, PATIENCE, "the first link's address")
    shell.type("python3 ask.py >answers.log 2>&1 &")
    client = shell.processes[-1]
    shell.testbed.wait_until(lambda: answers(shell).count(2) > 5, PATIENCE, "answers of the second link")
    ended = "link 1 has completed its requests"
    shell.testbed.wait_until(
        lambda: any(ended in path.read_text() for path in shell.home.glob("*-*.log")),
        PATIENCE,
        "the first link's end",
    )
    more = len(answers(shell)) + 5
    shell.testbed.wait_until(lambda: len(answers(shell)) > more, PATIENCE, "further answers")
    assert client.poll() is None, "it ends only where a request stays unanswered"
    client.send_signal(signal.SIGTERM)
    found = answers(shell)
    assert found == sorted(found)
    assert set(found) == {1, 2}
    wait_for_end(shell)
    shown = shell.type(f"mirage chain show {'llm' if name == 'vllm' else name}")
    assert "Handovers  1; interruption 00:00:00" in shown
