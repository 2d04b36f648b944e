"""The simulated pool again, slow and plain: objects, lists and fractions instead of tables and floats.

Every time is computed from scratch: who runs where gives every speed, and the next thing to happen is looked
for among all. Placing is first-fit or best-fit as ``kernel.placing`` says, preemption as ``rearranging`` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.ddl.dispatch import DispatchRules
    from mirage.domain.pool import Pool, SpeedTable, TaskTable


def ceil(total: int, part: int, of: int) -> int:
    return -(-total * part // of)


@dataclass(eq=False)
class Task:
    row: int
    submit: Fraction
    devices: int
    share: Fraction
    kinds: int
    max_nodes: int
    cpus: int
    memory: int
    work: Fraction
    expected: Fraction | None
    restart: Fraction | None
    after: set[int]
    left: Fraction
    place: list[int] = field(default_factory=list)
    """Devices while it runs; -1 - node for a task of CPUs alone."""
    start: Fraction | None = None
    end: Fraction | None = None
    ready: Fraction = Fraction(0)
    served: Fraction = Fraction(0)
    fee: Fraction = Fraction(0)
    preemptions: int = 0

    @property
    def remaining(self) -> Fraction | None:
        """Estimated remaining work."""
        return None if self.expected is None else max(self.expected - (self.work - self.left), Fraction(0))


class ReferencePool:
    def __init__(
        self, tasks: TaskTable, pool: Pool, speeds: SpeedTable, rules: DispatchRules, *, best_fit: bool
    ) -> None:
        self.pool, self.speeds, self.best = pool, speeds, best_fit
        self.strict, self.preempt, self.move = rules.strict, rules.preempt, rules.move
        self.quantum = None if rules.quantum == float("inf") else Fraction(rules.quantum)
        self.tasks = [_task(tasks, row) for row in range(len(tasks))]
        self.now = min(task.submit for task in self.tasks)
        self.decided = self.now
        self.arrived: set[Task] = set()

    # Who is where

    def node(self, device: int) -> int:
        return -1 - device if device < 0 else int(self.pool.device_node[device])

    def nodes(self, task: Task) -> set[int]:
        return {self.node(device) for device in task.place}

    def running(self) -> list[Task]:
        return [task for task in self.tasks if task.place]

    def pending(self) -> list[Task]:
        """Those that may start, in order of submission."""
        ended = {task.row for task in self.tasks if task.end is not None}
        waiting = [t for t in self.arrived if not t.place and t.end is None]
        return sorted((t for t in waiting if t.after <= ended), key=lambda t: (t.submit, t.row))

    def free(self, device: int, holders: list[Task]) -> Fraction:
        return 1 - sum((task.share for task in holders if device in task.place), Fraction(0))

    def left_on(self, node: int, holders: list[Task]) -> tuple[int, int]:
        """CPUs and memory not taken."""
        cpus, memory = int(self.pool.cpus[node]), int(self.pool.memory_mb[node])
        for task in holders:
            here = sum(self.node(device) == node for device in task.place)
            if here:
                cpus -= ceil(task.cpus, here, max(task.devices, 1))
                memory -= ceil(task.memory, here, max(task.devices, 1))
        return cpus, memory

    # Speeds

    def speed_row(self, task: Task) -> int:
        spread = min(len(self.nodes(task)), self.speeds.row.shape[2]) - 1
        kinds = [0 if device < 0 else int(self.pool.device_kind[device]) for device in task.place]
        rows = [int(self.speeds.row[task.row, kind, spread]) for kind in kinds]
        return min(rows, key=lambda row: self.speeds.alone[row])

    def speed(self, task: Task) -> Fraction:
        mine = self.speed_row(task)
        speed = Fraction(float(self.speeds.alone[mine]))
        for other in self.running():
            if other is not task and self.nodes(other) & self.nodes(task):
                speed *= Fraction(float(self.speeds.together[mine, self.speed_row(other)]))
        return speed

    # Time

    def play(self, score: Callable[[Task], Fraction]) -> None:
        while self.advance():
            if self.preempt and self.move:
                self.repack(score)
            elif self.preempt:
                self.rearrange(score)
            else:
                self.start_in_order(sorted(self.pending(), key=score))
            self.check()

    def advance(self) -> bool:
        """To the next time at which something is pending."""
        while True:
            instants = [self.end_of(task) for task in self.running()]
            instants += [task.submit for task in self.tasks if task not in self.arrived]
            if self.quantum is not None and self.running() and self.pending():
                instants.append(self.decided + self.quantum)
            if not instants:
                return False
            self.pass_time(min(instants))
            for task in self.running():
                if task.left == 0 and task.ready <= self.now:
                    task.place, task.end = [], self.now
            self.arrived |= {task for task in self.tasks if task.submit <= self.now}
            if self.pending():
                self.decided = self.now
                return True

    def end_of(self, task: Task) -> Fraction:
        return max(self.now, task.ready) + task.left / self.speed(task)

    def pass_time(self, until: Fraction) -> None:
        speeds = {task: self.speed(task) for task in self.running()}
        for task, speed in speeds.items():
            task.left -= max(until - max(self.now, task.ready), Fraction(0)) * speed
            task.served += until - self.now
            prices = [Fraction(float(self.pool.price[self.pool.device_kind[d]])) for d in task.place if d >= 0]
            task.fee += sum(prices, Fraction(0)) * task.share * (until - self.now) / 3600
        self.now = until

    # Decisions

    def start(self, task: Task, place: list[int]) -> None:
        task.place = place
        task.ready = self.now
        if task.start is None:
            task.start = self.now
        else:
            assert task.restart is not None
            task.ready += task.restart

    def start_in_order(self, order: list[Task]) -> None:
        for task in order:
            place = self.find(task, self.running())
            if place:
                self.start(task, place)
            elif self.strict:
                return

    def candidates(self, score: Callable[[Task], Fraction]) -> tuple[list[Task], list[Task]]:
        """Those that run on whatever is decided; and all others, in order."""
        fixed = [t for t in self.running() if t.restart is None]
        others = self.pending() + [t for t in self.running() if t.restart is not None]
        return fixed, sorted(sorted(others, key=lambda t: (t.submit, t.row)), key=score)

    def repack(self, score: Callable[[Task], Fraction]) -> None:
        fixed, order = self.candidates(score)
        packed: list[Task] = []
        blocked = False
        for task in order:
            place = self.find(task, fixed + packed) if task.place or not blocked else []
            if place:
                packed.append(_placed(task, place))
            elif not task.place:
                blocked = self.strict
        rows = {task.row for task in packed}
        staying = [task for task in order if task.place and task.row in rows]
        coming: list[Task] = []
        for task in order:
            if not task.place and task.row in rows:
                coming.append(_placed(task, self.find(task, fixed + staying + coming)))
                if not coming[-1].place:
                    break
        if all(task.place for task in coming):
            packed = staying + coming
        places = {task.row: task.place for task in packed}
        begun = [
            (task, places[task.row]) for task in order if task.row in places and places[task.row] != task.place
        ]
        for task in order:
            if task.place and task.place != places.get(task.row):
                task.place = []
                task.preemptions += 1
        for task, place in begun:
            self.start(task, place)

    def rearrange(self, score: Callable[[Task], Fraction]) -> None:
        fixed, order = self.candidates(score)
        holding = [task for task in order if task.place]
        """Running and not displaced; those newly placed are not among them."""
        begun: list[tuple[Task, list[int]]] = []
        settled: list[Task] = []
        for i, task in enumerate(order):
            if task in holding:
                settled.append(task)
                continue
            behind = [t for t in order[i + 1 :] if t in holding]
            taken = fixed + settled + [_placed(t, place) for t, place in begun]
            place: list[int] = []
            for staying in range(len(behind), -1, -1):
                place = place or self.find(task, taken + behind[:staying])
            if place:
                begun.append((task, place))
                holding = self.holding_after(holding, behind, [*taken, _placed(task, place)])
            elif self.strict:
                break
        for task in order:
            if task.place and task not in holding:
                task.place = []
                task.preemptions += 1
        for task, place in begun:
            self.start(task, place)

    def holding_after(self, holding: list[Task], behind: list[Task], taken: list[Task]) -> list[Task]:
        """Those that hold their devices on next to what is taken; where two collide, the first does."""
        staying: list[Task] = []
        for task in behind:
            if self.fits_where_it_is(task, taken + staying):
                staying.append(task)
        return [task for task in holding if task not in behind or task in staying]

    def fits_where_it_is(self, task: Task, beside: list[Task]) -> bool:
        holders = [*beside, task]
        return all(d < 0 or self.free(d, holders) >= 0 for d in task.place) and all(
            min(self.left_on(node, holders)) >= 0 for node in self.nodes(task)
        )

    # Places

    def find(self, task: Task, holders: list[Task]) -> list[int]:
        """Where the task goes next to these; empty: nowhere."""
        nodes = range(len(self.pool.node_names))
        usable = {node: self.usable(task, node, holders) for node in nodes}
        if task.devices == 0:
            fitting = [node for node in nodes if self.enough(task, node, holders)]
            rated = [(self.vacancy(node, holders) if self.best else 0, node) for node in fitting]
            return [-1 - min(rated)[1]] if rated else []
        taken: list[int] = []
        left, open_nodes = task.devices, list(nodes)
        for _ in range(task.max_nodes):
            whole = [n for n in open_nodes if len(usable[n]) >= left]
            if whole:
                node = min(whole, key=lambda n: (self.vacancy(n, holders) if self.best else 0, n))
            else:
                node = max(open_nodes, key=lambda n: (len(usable[n]), -n), default=-1)
                if node < 0 or not usable[node]:
                    return []
            taken += usable[node][:left]
            left -= len(usable[node][:left])
            open_nodes.remove(node)
            if left == 0:
                return sorted(taken)
        return []

    def enough(self, task: Task, node: int, holders: list[Task]) -> bool:
        cpus, memory = self.left_on(node, holders)
        return cpus >= task.cpus and memory >= task.memory

    def vacancy(self, node: int, holders: list[Task]) -> Fraction:
        devices = [d for d in range(len(self.pool.device_node)) if self.node(d) == node]
        return sum((self.free(d, holders) for d in devices), Fraction(0))

    def usable(self, task: Task, node: int, holders: list[Task]) -> list[int]:
        """The devices on a node that the task could have, as many as CPUs and memory are there for."""
        devices = [
            d
            for d in range(len(self.pool.device_node))
            if self.node(d) == node
            and task.kinds >> int(self.pool.device_kind[d]) & 1
            and self.free(d, holders) >= task.share
        ]
        if self.best and task.share < 1:
            devices.sort(key=lambda d: self.free(d, holders))
        devices = devices[: task.devices]
        cpus, memory = self.left_on(node, holders)
        while devices and (
            ceil(task.cpus, len(devices), task.devices) > cpus
            or ceil(task.memory, len(devices), task.devices) > memory
        ):
            devices.pop()
        return devices

    def check(self) -> None:
        """No device or node has more taken than it has."""
        running = self.running()
        for device in range(len(self.pool.device_node)):
            assert self.free(device, running) >= 0
        for node in range(len(self.pool.node_names)):
            assert min(self.left_on(node, running)) >= 0


def _placed(task: Task, place: list[int]) -> Task:
    """The task as it would be there."""
    return replace(task, place=place)


def _known(value: float) -> Fraction | None:
    return None if math.isnan(value) else Fraction(value)


def _task(tasks: TaskTable, row: int) -> Task:
    work = Fraction(float(tasks.work[row]))
    return Task(
        row=row,
        submit=Fraction(float(tasks.submit[row])),
        devices=int(tasks.devices[row]),
        share=Fraction(float(tasks.share[row])),
        kinds=int(tasks.kinds[row]),
        max_nodes=int(tasks.max_nodes[row]),
        cpus=int(tasks.cpus[row]),
        memory=int(tasks.memory_mb[row]),
        work=work,
        expected=_known(float(tasks.expected[row])),
        restart=_known(float(tasks.restart[row])),
        after=set(tasks.after[row]) if tasks.after else set(),
        left=work,
    )
