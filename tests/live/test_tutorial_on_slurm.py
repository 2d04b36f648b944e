"""The tutorial's part on a real Slurm, typed by one of its users."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from user_shell import PATIENCE, ROOT

sys.path.insert(0, str(ROOT / "tests" / "docs"))

from console import typed

if TYPE_CHECKING:
    from user_shell import Shell


def test_on_a_real_slurm(shell: Shell) -> None:
    steps = list(typed((ROOT / "docs/tutorial.md").read_text(), "A real Slurm on this machine"))
    commands = [step.command for step in steps]
    assert {"mirage submit train.sh", "mirage daemon >daemon.log 2>&1 &"} <= set(commands)
    for step in steps:
        if step.command == "mirage doctor":
            shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
        if step.command == "mirage chain show train":
            shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), PATIENCE, "its end")
            shell.testbed.wait_until(
                lambda: not shell.says("mirage chain show train", "RUNNING"), PATIENCE, "the end of its last job"
            )
        if step.command != "kill %1":
            step.check(shell.type(step.command))
    shown = shell.type("mirage chain show train")
    links = [line.split() for line in shown.partition("LINK ")[2].splitlines()[1:]]
    states = [link[2] for link in links]
    assert states[:2] == ["COMPLETED"] * 2
    # A third one, submitted ahead, finds nothing to do or is cancelled before it starts.
    assert states[2:] in ([], ["COMPLETED"], ["CANCELLED"])
    logs = "".join((shell.home / f"train-{link[1]}.log").read_text() for link in links)
    assert "link 1 continues from step 0" in logs
    saved = int(logs.partition("saved at step ")[2].split()[0])
    assert f"link 2 continues from step {saved}" in logs


def test_a_server_of_the_documents_hands_over_without_an_interruption(shell: Shell) -> None:
    for command in ("cp CHECKOUT/docs/examples/serve.* .", "mirage daemon >daemon.log 2>&1 &"):
        shell.type(command)
    shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
    shell.type("mirage submit serve.sh")
    shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), PATIENCE, "three links")
    shown = shell.type("mirage chain show serve")
    assert "Handovers  2; interruption 00:00:00" in shown
    logs = "".join(path.read_text() for path in shell.home.glob("serve-*.log"))
    assert [f"link {index} answers" in logs for index in (1, 2, 3)] == [True] * 3
    assert logs.count("drained") >= 2
