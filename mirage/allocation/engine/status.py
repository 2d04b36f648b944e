"""The state of a run as one document: for ``mirage allocation status`` and the web UI."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.allocation.engine.journal import JournalReader, StateFolder
from mirage.allocation.engine.task_interface import last_report
from mirage.allocation.engine.task_states import TaskState, TaskStates
from mirage.allocation.engine.taskfile import read_plan
from mirage.atomic_file import write_atomically
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mirage.allocation.engine.plan import TaskSpec
    from mirage.allocation.engine.task_states import TaskAttempt

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One attempt on one device."""

    device: str
    """``node:index``; ``node:`` for a task without devices."""
    task: str
    attempt: int
    share: float
    start: float
    end: float | None


def bars(ledger: TaskStates) -> list[AttemptSpan]:
    """Every attempt that was started, on each of its devices, in order of the start."""
    found = [
        AttemptSpan(
            f"{node}:{index}",
            each.task,
            each.number,
            each.share,
            each.start,
            each.ended.at if each.ended else None,
        )
        for attempts in ledger.attempts.values()
        for each in attempts.values()
        if each.start is not None
        for node, indices in (each.parts or {}).items()
        for index in (map(str, indices) if indices else ("",))
    ]
    return sorted(found, key=lambda bar: (bar.start, bar.device))


def most_at_once(every: Iterable[AttemptSpan]) -> dict[str, float]:
    """The greatest sum of shares held at one time, for each device; above 1 is oversubscribed."""
    changes: dict[str, list[tuple[float, int, float]]] = {}
    for bar in every:
        if bar.device.endswith(":"):
            continue
        steps = changes.setdefault(bar.device, [])
        steps.append((bar.start, 1, bar.share))
        if bar.end is not None:
            steps.append((bar.end, 0, -bar.share))
    return {device: _peak(steps) for device, steps in changes.items()}


def _peak(steps: list[tuple[float, int, float]]) -> float:
    held = peak = 0.0
    for _, _, change in sorted(steps):
        held += change
        peak = max(peak, held)
    return peak


def document(
    tasks: Mapping[str, TaskSpec] | None, ledger: TaskStates, now: float, folder: StateFolder | None = None
) -> Document:
    """The status.

    ``tasks``: those of the plan where it can be read; without it only tasks with an attempt are known. ``folder``:
    directory of the progress reports.
    """
    names = list(tasks) if tasks else list(ledger.attempts)
    states = ledger.states(tasks.values()) if tasks else {}
    rows = [_task(name, ledger, states.get(name), tasks, folder) for name in names]
    return {
        "version": 1,
        "time": now,
        "began": None if ledger.zero == float("inf") else ledger.zero,
        "counts": {state.value: sum(row["state"] == state.value for row in rows) for state in TaskState},
        "over": bool(rows) and all(TaskState(row["state"]).over for row in rows),
        "links": [_life(name, ledger) for name in sorted(ledger.lives)],
        "tasks": rows,
        "lanes": _lanes(bars(ledger)),
    }


def read_status(folder: Path, now: float) -> Document:
    """The status, from the journals alone: valid also when no agent runs.

    Raises ``ConfigError`` where there is no journal.
    """
    state, ledger = StateFolder(folder), read_ledger(folder)
    return document(_plan_of(ledger), ledger, now, state)


def read_ledger(folder: Path) -> TaskStates:
    """Parse all journals. Raises ``ConfigError`` if there is no journal."""
    state, ledger = StateFolder(folder), TaskStates()
    if not state.journals.is_dir():
        raise ConfigError(
            str(folder), "holds no journal of tasks; name the state directory of `mirage allocation run`"
        )
    ledger.fold(JournalReader(state).news())
    return ledger


def _plan_of(ledger: TaskStates) -> dict[str, TaskSpec] | None:
    """The tasks of the file that the last agent run was given, if it can be read now."""
    sources = [life.began.source for _, life in sorted(ledger.lives.items()) if life.began]
    try:
        return {task.name: task for task in read_plan(Path(sources[-1])).tasks} if sources else None
    except ConfigError:
        return None


def publish(path: Path, content: Document) -> None:
    """Replace the whole document: readers see the old one or the new one. Raises ``OSError``."""
    write_atomically(path, f"{json.dumps(content)}\n".encode())


def _task(
    name: str,
    ledger: TaskStates,
    known: tuple[TaskState, str] | None,
    tasks: Mapping[str, TaskSpec] | None,
    folder: StateFolder | None,
) -> Document:
    attempts = ledger.of(name)
    last = attempts[-1] if attempts else None
    state, why = known or _guessed(last)
    return {
        "id": name,
        "state": state.value,
        "why": why,
        "attempts": len(attempts),
        "devices": tasks[name].devices if tasks else None,
        "where": {} if last is None or state is TaskState.PENDING else last.parts or {},
        "link": last.life if last else None,
        "start": last.start if last else None,
        "end": last.ended.at if last and last.ended else None,
        "served": ledger.served(name),
        "progress": _progress(last, state, folder),
        "preempted": ledger.preemptions(name),
        "saving": bool(last and last.stopping and last.stopping.saves and not last.ended),
        "stopping": last.stopping.why if last and last.stopping and not last.ended else None,
    }


def _progress(last: TaskAttempt | None, state: TaskState, folder: StateFolder | None) -> float | None:
    """The reported progress of a task that is not over, from 0 to 1."""
    if last is None or folder is None or state.over:
        return None
    report = last_report(folder, last.task, last.number)
    return None if report is None else report.part


def _guessed(last: TaskAttempt | None) -> tuple[TaskState, str]:
    """Attempts left; not known without the plan."""
    if last is None or last.ended is None:
        return (TaskState.RUNNING if last else TaskState.PENDING), ""
    return (TaskState.SUCCEEDED if last.ended.result == "succeeded" else TaskState.PENDING), last.ended.why


def _life(name: str, ledger: TaskStates) -> Document:
    record = ledger.lives[name]
    began, pool = record.began, record.pool
    return {
        "life": name,
        "link": began.link if began else None,
        "job": began.job if began else None,
        "host": began.host if began else None,
        "engine": began.engine if began else None,
        "began": began.at if began else None,
        "limit": pool.end if pool else None,
        "over": record.over.at if record.over else None,
        "why": record.over.why if record.over else None,
        "nodes": {node: [list(device) for device in devices] for node, devices in pool.nodes.items()}
        if pool
        else {},
        "aside": record.aside,
    }


def _lanes(every: Iterable[AttemptSpan]) -> Document:
    lanes: Document = {}
    for bar in every:
        content = {
            "task": bar.task,
            "attempt": bar.attempt,
            "share": bar.share,
            "start": bar.start,
            "end": bar.end,
        }
        lanes.setdefault(bar.device, []).append(content)
    return dict(sorted(lanes.items()))
