"""``mirage allocation requests train``: an agent that scores requests, from workloads drawn for it."""

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
    """What is trained."""

    RELMAS = "relmas"
    ODRA = "odra"


Scenarios = Annotated[
    list[str], typer.Argument(metavar="SCENARIO...", help="Scenarios (TOML, or built in) to draw workloads from.")
]
Which = Annotated[
    Agent, typer.Option("--agent", help="relmas: deadlines and bandwidth. odra: latency and fairness.")
]
Out = Annotated[
    Path, typer.Option("-o", "--output", help="Directory to make: the trained agent with its manifest.")
]
Seed = Annotated[
    int, typer.Option(min=0, max=90, help="Of the training. Its workloads have seeds from 500000 on.")
]
Rounds = Annotated[
    int, typer.Option(min=1, max=HIGHEST_FACTOR, help="Rounds of playing and learning, before 8 of refining.")
]
Period = Annotated[
    float,
    typer.Option(
        min=0.01, max=HIGHEST_COUNT, callback=finite, help="T_s: milliseconds between two decisions of the agent."
    ),
]
State = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep the state here as it learns, and continue from it.")
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
    """Train an agent for requests. Needs torch; what comes out does not.

    Use it by --policy relmas:OUT or odra:OUT.
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
    typer.echo(f"{out}: {training.best:+.4f} over the matcher alone, on workloads kept for validation")


def _train(course: Course, state: Path | None) -> Training:
    import torch

    from mirage.training.relmas.course import Training

    # Small networks: more threads wait for each other longer than they compute.
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
        typer.echo(f"constants imitated: a mean square of {training.imitate():.4f} is missed", err=True)
    for report in training.rounds():
        if report.validation is not None:
            typer.echo(
                f"round {report.number}: {report.gained:+.4f} a period, validated {report.validation:+.4f}",
                err=True,
            )
            if state is not None:
                training.save(state)
    return training
