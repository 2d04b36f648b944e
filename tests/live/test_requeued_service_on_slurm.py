"""A service whose successor is requeued while it loads: the handover waits for its second run, and happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from user_shell import PATIENCE

if TYPE_CHECKING:
    from user_shell import Shell

SERVE = """#!/bin/bash
#SBATCH -J serve -N1 -t 300 --requeue -o serve-%j.log --open-mode=append
echo "$SLURM_JOB_ID begins $MIRAGE_LINK" >>events
trap 'echo "$SLURM_JOB_ID told" >>events; exit 0' TERM
while :; do
  [ -e "up$SLURM_JOB_ID" ] && [ -n "$MIRAGE_HANDOVER_FILE" ] && touch "$MIRAGE_HANDOVER_FILE"
  sleep 20 & wait $!
done
"""


def test_requeued_successor_takes_over_once_it_is_ready(shell: Shell) -> None:
    (shell.home / "serve.sh").write_text(SERVE)
    events = shell.home / "events"
    shell.type("mirage daemon &")
    shell.testbed.wait_until(lambda: shell.says("mirage chains", "CHAIN"), PATIENCE, "the daemon")
    shell.type(
        "mkdir -p .mirage; mirage submit --handover when-ready --steering off --predictor fixed:299m serve.sh"
    )

    def begun() -> list[str]:
        return [line.split()[0] for line in events.read_text().splitlines() if "begins" in line]

    shell.testbed.wait_until(lambda: events.exists() and len(begun()) == 2, PATIENCE, "the successor")
    first, second = begun()
    shell.type(f"touch up{first}")
    shell.type(f"scontrol requeue {second}")
    shell.testbed.wait_until(lambda: begun() == [first, second, second], PATIENCE, "its second run")
    assert f"{first} told" not in events.read_text()
    shell.type(f"touch up{second}")
    shell.testbed.wait_until(lambda: f"{first} told" in events.read_text(), PATIENCE, "the handover")
    shell.type("mirage chain cancel serve")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the end of its jobs")
