"""Tasks within links: devices as lanes, attempts of tasks as bars."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.agentstatus import ReportedTaskState, TaskStatus
from mirage.api.conventions.documents import Described, instant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.api.agentstatus import AgentRunState, ShownAttempt, Task
    from mirage.api.taskfiles import Seen
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds

MOST_LANES = 1_024
"""Lanes of one chain; further ones, by node and index, are left out."""
MOST_PIECES = 2_000
"""Attempts of one chain; older ones are left out."""
MOST_TROUBLES = 20
STALE = 180
"""Seconds without an update after which the agent may have stopped."""
_LONGEST_REASON = 300


class TaskCountsDocument(Described):
    """Number of tasks by state."""

    total: int
    """All tasks."""
    done: int
    """Succeeded."""
    running: int
    """Running now."""
    waiting: int
    """Waiting for their first or next attempt."""
    failed: int
    """Failed, without further attempts."""
    skipped: int
    """Not run because a task that they depend on has failed."""


class TaskPieceDocument(Described):
    """One attempt of a task on one device."""

    task: str
    """Task ID in the task file."""
    attempt: int
    """Number of the attempt, from 1."""
    share: float
    """Share of the device, up to 1."""
    state: str
    """running, succeeded, failed; ended: another attempt follows."""
    start: str | None
    """Start time."""
    end: str | None
    """End time; ``null``: running."""


class TaskLaneDocument(Described):
    """A device of a link, with its attempts."""

    node: str
    """Node name."""
    device: int | None
    """Index of the device on its node; ``null``: the CPUs, for tasks without a device."""
    kind: str
    """Type of the device, such as ``gpu:a100``."""
    link: int | None
    """Number of the link; ``null``: unknown."""
    pieces: list[TaskPieceDocument]
    """Oldest first."""


class TaskTrouble(Described):
    """A failed task and its reason."""

    task: str
    """Task ID."""
    why: str
    """Reason reported by the agent."""


class TasksDocument(Described):
    """Task state of one chain, as last written by the agent in its links."""

    chain: str
    """Chain ID."""
    name: str
    """Chain name."""
    problem: str
    """Why the task state is unknown; empty: known."""
    written: str | None
    """Time at which the agent wrote the state."""
    stale: bool
    """Whether a link is running but the state is more than 3 minutes old."""
    over: bool
    """Whether all tasks have finished."""
    counts: TaskCountsDocument | None
    """Number of tasks by state; ``null``: unknown."""
    lanes: list[TaskLaneDocument]
    """Devices of the running links, or of the last link; sorted by node and index."""
    hidden_lanes: int
    """Number of devices left out, the last by node and index."""
    hidden: int
    """Number of attempts left out on the shown devices, the oldest ones."""
    failed: list[TaskTrouble]
    """The first 20 failed tasks."""


def tasks_document(record: ChainRecord, seen: Seen, now: Seconds) -> TasksDocument:
    """Return the task state of a chain at ``now``."""
    if not isinstance(seen, TaskStatus):
        return _unknown(record, seen)
    lives = _lives(record, seen)
    places = _places(lives, seen)
    lanes, hidden = _lanes(dict(list(places.items())[:MOST_LANES]), seen)
    return TasksDocument(
        chain=record.chain.chain_id,
        name=record.chain.name,
        problem="",
        written=instant(int(seen.time)),
        stale=record.head is not None and not seen.over and now - seen.time > STALE,
        over=seen.over,
        counts=_counts(seen.tasks),
        lanes=lanes,
        hidden_lanes=len(places) - len(lanes),
        hidden=hidden,
        failed=[
            TaskTrouble(task=task.id, why=task.why[:_LONGEST_REASON])
            for task in seen.tasks
            if task.state is ReportedTaskState.FAILED
        ][:MOST_TROUBLES],
    )


def _unknown(record: ChainRecord, problem: str) -> TasksDocument:
    return TasksDocument(
        chain=record.chain.chain_id,
        name=record.chain.name,
        problem=problem,
        written=None,
        stale=False,
        over=False,
        counts=None,
        lanes=[],
        hidden_lanes=0,
        hidden=0,
        failed=[],
    )


def _counts(tasks: Iterable[Task]) -> TaskCountsDocument:
    by_state = Counter(task.state for task in tasks)
    return TaskCountsDocument(
        total=by_state.total(),
        done=by_state[ReportedTaskState.SUCCEEDED],
        running=by_state[ReportedTaskState.RUNNING],
        waiting=by_state[ReportedTaskState.PENDING],
        failed=by_state[ReportedTaskState.FAILED],
        skipped=by_state[ReportedTaskState.SKIPPED],
    )


def _lives(record: ChainRecord, seen: TaskStatus) -> list[tuple[int | None, AgentRunState]]:
    """Agent runs in running links, with the link numbers; without any: the last agent run."""
    links = {int(link.job_id): link for link in record.links if link.job_id}
    lives = [(links.get(life.job or 0), life) for life in sorted(seen.links, key=lambda life: life.began or 0)]
    running = [(link.index, life) for link, life in lives if link is not None and link.running]
    return [*running] or [(link.index if link else None, life) for link, life in lives[-1:]]


@dataclass(slots=True)
class _Place:
    """A device, or the CPUs of a node, since it is available."""

    kind: str
    link: int | None
    since: float


def _lanes(shown: dict[tuple[str, int | None], _Place], seen: TaskStatus) -> tuple[list[TaskLaneDocument], int]:
    """Return the lanes, and the number of attempts left out."""
    attempts = {
        (node, device): [
            each for each in seen.lanes.get(_key(node, device), ()) if each.end is None or each.end > place.since
        ]
        for (node, device), place in shown.items()
    }
    starts = sorted((each.start for lane in attempts.values() for each in lane), reverse=True)
    first = starts[MOST_PIECES - 1] if len(starts) > MOST_PIECES else 0.0
    tasks = {task.id: task for task in seen.tasks}
    lanes = [
        TaskLaneDocument(
            node=node,
            device=device,
            kind=place.kind,
            link=place.link,
            pieces=[_piece(each, tasks.get(each.task)) for each in attempts[node, device] if each.start >= first],
        )
        for (node, device), place in shown.items()
    ]
    return lanes, len(starts) - sum(len(lane.pieces) for lane in lanes)


def _places(
    lives: list[tuple[int | None, AgentRunState]], seen: TaskStatus
) -> dict[tuple[str, int | None], _Place]:
    places: dict[tuple[str, int | None], _Place] = {}
    for link, life in lives:
        for node, devices in life.nodes.items():
            if _key(node, None) in seen.lanes:
                places.setdefault((node, None), _Place("processors", link, life.began or 0))
            for index, kind in devices:
                places.setdefault((node, index), _Place(kind, link, life.began or 0)).link = link
    return dict(sorted(places.items(), key=lambda item: (item[0][0], -1 if item[0][1] is None else item[0][1])))


def _key(node: str, device: int | None) -> str:
    return f"{node}:{'' if device is None else device}"


def _piece(each: ShownAttempt, task: Task | None) -> TaskPieceDocument:
    return TaskPieceDocument(
        task=each.task,
        attempt=each.attempt,
        share=each.share,
        state=_state(each, task),
        start=instant(int(each.start)),
        end=None if each.end is None else instant(int(each.end)),
    )


def _state(each: ShownAttempt, task: Task | None) -> str:
    if each.end is None:
        return "running"
    last = task is not None and task.attempts == each.attempt
    return (
        task.state.value
        if task and last and task.state in (ReportedTaskState.SUCCEEDED, ReportedTaskState.FAILED)
        else "ended"
    )
