"""``mirage allocation train``: train DAS agents that order and place tasks, on generated task sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.domain.bounds import HIGHEST_FACTOR

if TYPE_CHECKING:
    from mirage.training.das.course import Course, Training

Mixes = Annotated[
    list[str], typer.Argument(metavar="MIX...", help="Task mixes (TOML) from which to draw task sets.")
]
PoolText = Annotated[
    str, typer.Option("--pool", metavar="POOL", help=r"Pool: NODESxDEVICES\[:KIND]\[@DOLLARS],...")
]
Speeds = Annotated[
    str, typer.Option(metavar="TABLE", help="Throughput table: deepshare:DIR, gavel:FILE or measured:FILE.")
]
Out = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="New directory of the trained agents and their manifest."),
]
Seed = Annotated[
    int, typer.Option(min=0, max=90, help="Random seed of the training; task sets use seeds from 500000 on.")
]
Rounds = Annotated[int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Number of training rounds.")]
Sets = Annotated[
    int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Task sets per round; each is simulated eight times.")
]
Tasks = Annotated[
    int, typer.Option(min=2, max=HIGHEST_FACTOR, help="Maximum number of tasks per set used for training.")
]
Without = Annotated[
    str,
    typer.Option(
        metavar="PARTS", help="Parts to leave out, for ablations: communication, walks; comma-separated."
    ),
]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Checkpoint file: written after each round, read to continue a training."),
]


def train_agents_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    mixes: Mixes,
    *,
    pool: PoolText,
    out: Out,
    speeds: Speeds = "",
    seed: Seed = 0,
    rounds: Rounds = 60,
    sets: Sets = 4,
    tasks: Tasks = 60,
    without: Without = "",
    state: State = None,
) -> None:
    """Train the two agents of DAS together. Training requires torch, the trained agents do not.

    Use the agents with --ordering das:DIR --placer das:DIR.
    """
    from mirage.artifact import refuse_existing
    from mirage.domain.errors import MissingExtra

    refuse_existing(out)
    try:
        from mirage.training.das.course import Course, shape_of
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "onnx"):
            raise
        raise MissingExtra("training agents", "agents") from None
    left_out = [part for part in without.split(",") if part]
    course = Course(
        tuple(mixes), pool, speeds, seed=seed, rounds=rounds, sets=sets, tasks=tasks, shape=shape_of(left_out)
    )
    training = _train(course, state)
    training.write(out)
    typer.echo(f"{out}: mean JCT {training.best:.3f} times that of the untrained agents, on the validation set")


def _train(course: Course, state: Path | None) -> Training:
    import torch

    from mirage.training.das.course import Training

    # Small networks: more threads would spend their time on synchronisation.
    torch.set_num_threads(1)
    training = Training(course)
    if state is not None and state.exists():
        training.resume(state)
    for report in training.rounds():
        told = "" if report.validation is None else f", validation {report.validation:.3f}"
        typer.echo(f"round {report.number}: mean JCT {report.measured['jct']:.0f} s{told}", err=True)
        if state is not None:
            training.save(state)
    return training
