"""``mirage allocation requests train``: train an agent that scores requests, on generated workloads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import finite
from mirage.cli.requests_replay import check_scenarios
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR

if TYPE_CHECKING:
    from mirage.training.relmas.course import Course, Training


class Agent(StrEnum):
    """Agent to train."""

    RELMAS = "relmas"
    ODRA = "odra"


Scenarios = Annotated[
    list[str],
    typer.Argument(
        metavar="SCENARIO...", help="Scenarios (TOML, or built-in names) from which to draw workloads."
    ),
]
Which = Annotated[
    Agent,
    typer.Option("--agent", help="Agent: relmas (deadlines and bandwidth) or odra (latency and fairness)."),
]
Out = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="DIR", help="New directory of the trained agent and its manifest."),
]
Seed = Annotated[
    int, typer.Option(min=0, max=90, help="Random seed of the training; workloads use seeds from 500000 on.")
]
Rounds = Annotated[
    int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Number of training rounds, before 8 rounds of fine-tuning.")
]
Period = Annotated[
    float,
    typer.Option(
        min=0.01, max=HIGHEST_COUNT, callback=finite, help="Time between two decisions of the agent (T_s), in ms."
    ),
]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Checkpoint file: written during training, read to continue a training."),
]


def train_requests_command(
    scenarios: Scenarios,
    *,
    out: Out,
    agent: Which = Agent.RELMAS,
    seed: Seed = 0,
    rounds: Rounds = 30,
    period_ms: Period = 50.0,
    state: State = None,
) -> None:
    """Train an agent that schedules requests. Training requires torch, the trained agent does not.

    Use the agent with --policy relmas:DIR or odra:DIR.
    """
    from mirage.artifact import refuse_existing
    from mirage.domain.errors import MissingExtra

    refuse_existing(out)
    check_scenarios(scenarios)
    try:
        from mirage.training.relmas.course import course_of
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "onnx", "cmaes"):
            raise
        raise MissingExtra("training agents", "agents") from None
    training = _train(course_of(agent.value, tuple(scenarios), seed, rounds, period_ms / 1000), state)
    training.write(out)
    typer.echo(f"{out}: {training.best:+.4f} compared with the matcher alone, on the validation set")


def _train(course: Course, state: Path | None) -> Training:
    import torch

    from mirage.training.relmas.course import Training

    # Small networks: more threads would spend their time on synchronisation.
    torch.set_num_threads(1)
    training = Training(course)
    if state is not None and state.exists():
        training.resume(state)
    else:
        typer.echo(f"matcher: {training.set_matcher()}", err=True)
    for name in training.find_constants():
        typer.echo(f"constants for {name}: found", err=True)
        if state is not None:
            training.save(state)
    if not training.imitated:
        typer.echo(f"constants imitated: mean squared error {training.imitate():.4f}", err=True)
    for report in training.rounds():
        if report.validation is not None:
            typer.echo(
                f"round {report.number}: {report.gained:+.4f} per period, validation {report.validation:+.4f}",
                err=True,
            )
            if state is not None:
                training.save(state)
    return training
