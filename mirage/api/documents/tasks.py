"""The tasks within links: accelerators as lanes, attempts at tasks on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.conventions.described import Described
from mirage.api.documents.instants import instant
from mirage.api.taskstate.content import State, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.api.taskstate.content import Attempt, Life, Task
    from mirage.api.taskstate.reading import Seen
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds

MOST_LANES = 1_024
"""Of one chain; those that come later by node and number are left out."""
MOST_PIECES = 2_000
"""Of one chain; older ones are left out."""
MOST_TROUBLES = 20
STALE = 180
"""Seconds without news after which an agent that should run may not."""
_LONGEST_REASON = 300


class TaskCounts(Described):
    """How many tasks are how far."""

    total: int
    """All of them."""
    done: int
    """Succeeded."""
    running: int
    """Running now."""
    waiting: int
    """To be run, or to be run again."""
    failed: int
    """Given up."""
    skipped: int
    """Not run, because a task that they wait for has failed."""


class TaskPieceDocument(Described):
    """One attempt at a task on one accelerator."""

    task: str
    """Its id in the file of tasks."""
    attempt: int
    """From 1."""
    share: float
    """Of the accelerator."""
    state: str
    """running, succeeded, failed; ended: another attempt has followed or will."""
    start: str | None
    """When it was started."""
    end: str | None
    """``null``: it runs."""


class TaskLaneDocument(Described):
    """An accelerator of a link."""

    node: str
    """Where it is."""
    device: int | None
    """Its number there; ``null``: the CPUs, for tasks that use no accelerator."""
    kind: str
    """Such as ``gpu:a100``."""
    link: int | None
    """The link's number in the chain; ``null``: not known."""
    pieces: list[TaskPieceDocument]
    """Oldest first."""


class TaskTrouble(Described):
    """A task that failed."""

    task: str
    """Its id."""
    why: str
    """As the agent says."""


class TasksDocument(Described):
    """How the tasks of one chain stand, as the agent in its links last wrote."""

    chain: str
    """The chain's id."""
    name: str
    """The chain's name."""
    problem: str
    """Why nothing is known; empty: something is."""
    written: str | None
    """When the agent wrote it."""
    stale: bool
    """Whether a link runs and nothing has been written for minutes."""
    over: bool
    """Whether all tasks are."""
    counts: TaskCounts | None
    """``null``: not known."""
    lanes: list[TaskLaneDocument]
    """Of the links that run, else of the last one; by node and number."""
    hidden_lanes: int
    """Accelerators that are left out, the last by node and number."""
    hidden: int
    """Attempts on the others that are left out, the oldest ones."""
    failed: list[TaskTrouble]
    """The first of the tasks that failed."""


def tasks_document(record: ChainRecord, seen: Seen, now: Seconds) -> TasksDocument:
    """How its tasks stand."""
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
            if task.state is State.FAILED
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


def _counts(tasks: Iterable[Task]) -> TaskCounts:
    by_state = Counter(task.state for task in tasks)
    return TaskCounts(
        total=by_state.total(),
        done=by_state[State.SUCCEEDED],
        running=by_state[State.RUNNING],
        waiting=by_state[State.PENDING],
        failed=by_state[State.FAILED],
        skipped=by_state[State.SKIPPED],
    )


def _lives(record: ChainRecord, seen: TaskStatus) -> list[tuple[int | None, Life]]:
    """The agent's lives in links that run, with the links' numbers; where there are none, the last one."""
    links = {int(link.job_id): link for link in record.links if link.job_id}
    lives = [(links.get(life.job or 0), life) for life in sorted(seen.links, key=lambda life: life.began or 0)]
    running = [(link.index, life) for link, life in lives if link is not None and link.running]
    return [*running] or [(link.index if link else None, life) for link, life in lives[-1:]]


@dataclass(slots=True)
class _Place:
    """An accelerator, or a node's CPUs, since somebody could use it."""

    kind: str
    link: int | None
    since: float


def _lanes(shown: dict[tuple[str, int | None], _Place], seen: TaskStatus) -> tuple[list[TaskLaneDocument], int]:
    """With the number of attempts that are left out."""
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


def _places(lives: list[tuple[int | None, Life]], seen: TaskStatus) -> dict[tuple[str, int | None], _Place]:
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


def _piece(each: Attempt, task: Task | None) -> TaskPieceDocument:
    return TaskPieceDocument(
        task=each.task,
        attempt=each.attempt,
        share=each.share,
        state=_state(each, task),
        start=instant(int(each.start)),
        end=None if each.end is None else instant(int(each.end)),
    )


def _state(each: Attempt, task: Task | None) -> str:
    if each.end is None:
        return "running"
    last = task is not None and task.attempts == each.attempt
    return task.state.value if task and last and task.state in (State.SUCCEEDED, State.FAILED) else "ended"
