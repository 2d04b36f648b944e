"""The services of the scenario: their requests to Slurm and Mirage, and how their chains must end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Service:
    """One chain to submit."""

    name: str
    owner: str
    slurm: tuple[str, ...]
    """Lines ``#SBATCH``, without the time limit."""
    script: str
    options: tuple[str, ...] = ()
    """Options of ``mirage submit``."""
    links: int | None = None
    """Number of links; ``None``: the scenario's number."""
    status: str = "done"
    """Status in which its chain must end."""

    def text(self, limit_minutes: int) -> str:
        """The batch script."""
        header = "".join(
            f"#SBATCH {line}\n" for line in (*self.slurm, f"--time={limit_minutes}", "--output=/dev/null")
        )
        return f"#!/bin/bash\n{header}{self.script}"


TRAIN = """
trap 'date >>"$HOME/checkpoint-$MIRAGE_CHAIN_ID"; exit 0' USR1
while :; do sleep 5; done
"""
"""A training run: writes a checkpoint when it is warned of its time limit, and exits."""

SERVE = """
trap 'exit 0' TERM
sleep 120
mkdir -p "$(dirname "$MIRAGE_HANDOVER_FILE")"
touch "$MIRAGE_HANDOVER_FILE"
while :; do sleep 5; done
"""
"""An inference service: two minutes to load its model, then it is ready to take over."""

FLAKY = """
[ $((MIRAGE_LINK % 3)) -ne 0 ] || { sleep 300; exit 3; }
while :; do sleep 5; done
"""

FINISHES = """
[ "$MIRAGE_LINK" -lt 3 ] || { sleep 300; exit 0; }
while :; do sleep 5; done
"""

BROKEN = "exit 1\n"

SERVICES = (
    Service(
        "train-v100",
        "alice",
        ("--partition=v100", "--nodes=1", "--gres=gpu:v100:4", "--signal=B:USR1@120"),
        TRAIN,
    ),
    Service(
        "serve-a100",
        "alice",
        ("--partition=a100", "--nodes=2", "--gres=gpu:a100:4"),
        SERVE,
        ("--handover=when-ready", "--grace=60"),
    ),
    Service(
        "train-npu",
        "bob",
        ("--partition=npu", "--nodes=1", "--gres=npu:ascend:8", "--signal=B:USR1@120"),
        TRAIN,
        ("--handover=on-start",),
    ),
    Service(
        "serve-npu", "bob", ("--partition=npu", "--nodes=2", "--gres=npu:ascend:4"), SERVE, ("--steering=hold",)
    ),
    Service(
        "flaky-v100",
        "bob",
        ("--partition=v100", "--nodes=1", "--gres=gpu:v100:2"),
        FLAKY,
        ("--on-failure=continue",),
    ),
    Service("early-cpu", "alice", ("--partition=cpu", "--nodes=1"), FINISHES, links=3),
    Service("broken-cpu", "bob", ("--partition=cpu", "--nodes=1"), BROKEN, links=4, status="stopped"),
)
"""Five that run through all their links (one of them fails periodically), one that finishes early, one that
never works."""
