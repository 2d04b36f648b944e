"""``mirage allocation``: commands inside an allocation; here those that run tasks."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.allocation_costs import costs_app
from mirage.cli.allocation_requests import requests_app
from mirage.cli.allocation_serving import front_command, load_command, serve_command
from mirage.cli.allocation_tasks import pack_command, task_replay_command, train_agents_command
from mirage.cli.arguments import finite, value_of
from mirage.cli.run_output import check_writable, write_json
from mirage.cli.shared_options import AsJson, Devices, EngineName, JsonFlagCommand, OutputCommand
from mirage.domain.bounds import YEAR

if TYPE_CHECKING:
    from mirage.allocation.ddl.speeds import Measurements
    from mirage.allocation.engine.dependencies import AgentSettings

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="State directory, or the task file.")]
Out = Annotated[
    str,
    typer.Option("-o", "--output", metavar="FILE", help="Write the throughput table, for --speeds measured:FILE."),
]


def speeds_command(folder: Folder, *, out: Out = "", as_json: AsJson = False) -> None:
    """Show the throughput that tasks reported: by number of nodes, kind of device and neighbour tasks.

    All links of the chain count. A speed is relative to the same model on the fewest nodes.
    """
    from mirage.allocation.ddl.estimation import estimate
    from mirage.allocation.ddl.formats.speeds import document
    from mirage.allocation.engine.run import kept_state
    from mirage.allocation.engine.status import read_ledger

    check_writable("--output", out)
    evidence = read_ledger(kept_state(folder, os.environ)).evidence
    measured = estimate(evidence)
    content = document(measured, evidence)
    if out:
        write_json(out, content)
    if as_json:
        typer.echo(json.dumps(content))
    elif not out:
        _show_speeds(measured, content)


def _show_speeds(measured: Measurements, content: dict[str, Any]) -> None:
    from mirage.cli.tables import print_table

    runs = content["runs"]
    if not runs:
        typer.echo("no measurements: tasks must name a model and report their progress")
        return
    rows: list[tuple[str, ...]] = [("MODEL", "DEVICES", "NODES", "KIND", "SPEED", "PER SECOND", "HOURS")]
    rows += [_speed_row(run, measured) for run in runs]
    print_table(rows)
    beside: list[tuple[str, ...]] = [("BESIDE", "", "KEEPS")]
    beside += [(_name(runs[row]), _name(runs[other]), f"{left:.2f}") for row, other, left in content["beside"]]
    if len(beside) > 1:
        typer.echo()
        print_table(beside)


def _speed_row(run: dict[str, Any], measured: Measurements) -> tuple[str, ...]:
    speed = run["throughput"] / measured.reference(run["model"], run["devices"])
    hours = run["seconds"] / 3600
    numbers = (f"{speed:.2f}", f"{run['throughput']:.4g}", f"{hours:.1f}")
    return (run["model"], str(run["devices"]), str(run["spread"]), run["kind"], *numbers)


def _name(run: dict[str, Any]) -> str:
    return f"{run['model']}, {run['devices']} on {run['spread']} {run['kind']}"


Tasks = Annotated[Path, typer.Argument(metavar="TASKS.toml", help="Task file; docs/allocation.md lists its keys.")]
State = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="State directory with the journal (default: next to the task file, one per chain)."
    ),
]
Order = Annotated[str, typer.Option("--ordering", metavar="NAME", help="Ordering policy.")]
Place = Annotated[str, typer.Option("--placer", metavar="NAME", help="Placement policy.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Strict order: do not backfill past a task that does not fit.")
]
Preempt = Annotated[
    bool, typer.Option("--preempt", help="Preempt tasks with a checkpoint for tasks before them in the order.")
]
Move = Annotated[
    bool, typer.Option("--move", help="With --preempt: also move tasks to other devices to make room.")
]
Quantum = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0.0,
        max=YEAR,
        callback=finite,
        help="Time between scheduling decisions while tasks wait, in seconds; 0: only on events.",
    ),
]
Speeds = Annotated[
    str,
    typer.Option(
        metavar="TABLE",
        help="Initial throughput table: deepshare:DIR, gavel:FILE or measured:FILE; refined by measurements.",
    ),
]
DoneFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File to create when all tasks have ended: the chain's --done-file."),
]


def run_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    tasks: Tasks,
    *,
    state: State = None,
    engine: EngineName = "",
    devices: Devices = None,
    ordering: Order = "fifo",
    placer: Place = "best-fit",
    strict: Strict = False,
    preempt: Preempt = False,
    move: Move = False,
    quantum: Quantum = 0.0,
    speeds: Speeds = "",
    done_file: DoneFile = None,
) -> None:
    """Run the tasks of a file on the devices of this Slurm job or machine; the next link runs the rest.

    Exit codes: 0 all tasks have ended (outside a chain: succeeded), 1 some tasks failed, 75 some tasks are left.
    """
    from mirage.allocation.engine.run import (
        AgentProcess,
        Alarm,
        Wishes,
        default_state,
        find_place,
        other_than_shown,
    )
    from mirage.allocation.engine.taskfile import read_plan

    if engine not in ("", "srun", "processes"):
        problem = f"invalid value {engine!r} (choose from srun, processes)"
        raise typer.BadParameter(problem, param_hint="--engine")
    if move and not preempt:
        raise typer.BadParameter("requires --preempt", param_hint="--move")
    plan = read_plan(tasks)
    policy = _policy(ordering, placer, strict=strict, preempt=preempt, move=move, quantum=quantum or math.inf)
    wishes = Wishes(state or default_state(tasks, os.environ), engine, devices, done_file, speeds)
    if remark := other_than_shown(wishes.state, os.environ):
        _say(remark)
    alarm = Alarm()
    link = AgentProcess(plan, find_place(wishes, os.environ), policy, wishes, _say)
    raise SystemExit(link.run(alarm))


def check_command(tasks: Tasks) -> None:
    """Check a task file and list all its errors, before you submit a job."""
    from mirage.allocation.engine.taskfile import read_plan

    plan = read_plan(tasks)
    waiting = sum(bool(task.after) for task in plan.tasks)
    typer.echo(f"{tasks}: {len(plan.tasks)} tasks, {waiting} of them depend on others")


def status_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="State directory, or the task file.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show the states of the tasks and the devices on which they run."""
    from mirage.allocation.engine.run import kept_state
    from mirage.allocation.engine.status import read_status

    document = read_status(kept_state(folder, os.environ), time.time())
    typer.echo(json.dumps(document)) if as_json else _show(document)


def _policy(
    ordering_name: str, placer_name: str, *, strict: bool, preempt: bool, move: bool, quantum: float
) -> AgentSettings:
    from mirage.allocation.ddl import registry
    from mirage.allocation.ddl.dispatch import DispatchRules, dispatch
    from mirage.allocation.engine.dependencies import AgentSettings

    with value_of("--ordering"):
        ordering = registry.ordering(ordering_name)
    with value_of("--placer"):
        placer = registry.placer(placer_name)
    rules = DispatchRules(strict, preempt, move, quantum)
    return AgentSettings(lambda view: dispatch(view, ordering, placer, rules), preempt, quantum)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full file system of the log must not end tasks
        typer.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", err=True)


def _show(document: dict[str, Any]) -> None:
    from mirage.cli.tables import print_table

    counts = ", ".join(f"{count} {state}" for state, count in document["counts"].items() if count)
    typer.echo(counts or "no tasks")
    rows: list[tuple[str, ...]] = [("TASK", "STATE", "DONE", "TRIES", "TIME", "WHERE", "REASON")]
    rows += [_row(task, document["time"]) for task in document["tasks"]]
    print_table(rows)


def _row(task: dict[str, Any], now: float) -> tuple[str, ...]:
    from mirage.cli.tables import span

    where = " ".join(f"{node}:{','.join(map(str, indices))}" for node, indices in task["where"].items())
    used = None if task["start"] is None else (task["end"] or now) - task["start"]
    reason = task["stopping"] or task["why"]
    state = "saving" if task["saving"] else task["state"]
    done = "-" if task["progress"] is None else f"{task['progress']:.0%}"
    return (task["id"], state.upper(), done, str(task["attempts"]), span(used), where or "-", reason or "-")


allocation_app = typer.Typer(
    no_args_is_help=True, help="Run tasks and serve models inside an allocation, and simulate both."
)
allocation_app.command("replay", cls=JsonFlagCommand)(task_replay_command)
allocation_app.command("train", cls=OutputCommand)(train_agents_command)
allocation_app.command("pack", cls=JsonFlagCommand)(pack_command)
allocation_app.command("run")(run_command)
allocation_app.command("check")(check_command)
allocation_app.command("status")(status_command)
allocation_app.command("serve")(serve_command)
allocation_app.command("front")(front_command)
allocation_app.command("load")(load_command)
allocation_app.add_typer(requests_app, name="requests")
allocation_app.add_typer(costs_app, name="costs")
allocation_app.command("speeds", cls=OutputCommand)(speeds_command)
