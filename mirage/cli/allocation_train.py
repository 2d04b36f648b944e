"""``mirage allocation train``: the agents that order and place tasks, from sets of tasks drawn for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.domain.bounds import HIGHEST_FACTOR

if TYPE_CHECKING:
    from mirage.training.das.course import Course, Training

Mixes = Annotated[list[str], typer.Argument(metavar="MIX...", help="Mixes (TOML) to draw sets of tasks from.")]
PoolText = Annotated[str, typer.Option("--pool", metavar="POOL", help=r"NODESxDEVICES\[:KIND]\[@DOLLARS],...")]
Speeds = Annotated[
    str, typer.Option(metavar="TABLE", help="Measured speeds: deepshare:FOLDER, gavel:FILE or measured:FILE.")
]
Out = Annotated[
    Path, typer.Option("-o", "--output", help="Directory to make: the trained agents and their manifest.")
]
Seed = Annotated[int, typer.Option(min=0, max=90, help="Of the training. Its sets have seeds from 500000 on.")]
Rounds = Annotated[int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Rounds of playing and learning.")]
Sets = Annotated[
    int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Sets of tasks in a round; each is played eight times.")
]
Tasks = Annotated[
    int, typer.Option(min=2, max=HIGHEST_FACTOR, help="At most so many tasks of each set are learned from.")
]
Without = Annotated[
    str,
    typer.Option(metavar="PARTS", help="Leave out communication or walks, comma-separated: to see their worth."),
]
State = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep the state here after each round, and continue from it.")
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
    """Train DAS's two agents together. Needs torch; what comes out does not.

    Use them by --ordering das:OUT --placer das:OUT.
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
    typer.echo(f"{out}: mean JCT {training.best:.3f} of that of the untrained agents, on sets kept for validation")


def _train(course: Course, state: Path | None) -> Training:
    import torch

    from mirage.training.das.course import Training

    # Small networks: more threads wait for each other longer than they compute.
    torch.set_num_threads(1)
    training = Training(course)
    if state is not None and state.exists():
        training.resume(state)
    for report in training.rounds():
        told = "" if report.validation is None else f", validated {report.validation:.3f}"
        typer.echo(f"round {report.number}: mean JCT {report.measured['jct']:.0f} s{told}", err=True)
        if state is not None:
            training.save(state)
    return training
