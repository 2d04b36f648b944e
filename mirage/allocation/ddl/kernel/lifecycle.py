"""What happens to a task: it comes, starts, is preempted, ends; and how fast it runs meanwhile.

The agenda holds the running tasks as a binary heap by their end; each knows its place in it, as ends move.
"""

from __future__ import annotations

from mirage.allocation.ddl.kernel import placing
from mirage.allocation.ddl.kernel.compile import compiled, inlined
from mirage.allocation.ddl.kernel.layout import (
    ENDED,
    PENDING,
    RUNNING,
    SLACK,
    WAITING,
    Draft,
    PoolConstants,
    PoolState,
    Room,
    Site,
)


@compiled
def add(world: PoolState, task: int) -> None:
    """Enter a task whose end is set."""
    sim = world.sim[0]
    place = sim.running
    sim.running = place + 1
    world.agenda[place] = task
    world.states[task].place = place
    _rise(world, place)


@compiled
def drop(world: PoolState, task: int) -> None:
    """Take a task off."""
    sim = world.sim[0]
    place, last = world.states[task].place, sim.running - 1
    sim.running = last
    if place == last:
        return
    moved = world.agenda[last]
    world.agenda[place] = moved
    world.states[moved].place = place
    _rise(world, place)
    _sink(world, world.states[moved].place)


@compiled
def renew(world: PoolState, task: int) -> None:
    """Put a task where its changed end belongs."""
    _rise(world, world.states[task].place)
    _sink(world, world.states[task].place)


@compiled
def _before(world: PoolState, a: int, b: int) -> bool:
    """Whether the task at place ``a`` ends before the one at ``b``; of equals the first row, to be repeatable."""
    x, y = world.agenda[a], world.agenda[b]
    ends = world.states[x].end, world.states[y].end
    return ends[0] < ends[1] or (ends[0] == ends[1] and x < y)


@compiled
def _swap(world: PoolState, a: int, b: int) -> None:
    x, y = world.agenda[a], world.agenda[b]
    world.agenda[a], world.agenda[b] = y, x
    world.states[y].place, world.states[x].place = a, b


@compiled
def _rise(world: PoolState, place: int) -> None:
    while place > 0:
        up = (place - 1) >> 1
        if not _before(world, place, up):
            return
        _swap(world, place, up)
        place = up


@compiled
def _sink(world: PoolState, place: int) -> None:
    running = world.sim[0].running
    while True:
        child = 2 * place + 1
        if child >= running:
            return
        if child + 1 < running and _before(world, child + 1, child):
            child += 1
        if not _before(world, child, place):
            return
        _swap(world, child, place)
        place = child


@compiled
def arrive(fixed: PoolConstants, world: PoolState, task: int) -> None:
    """A task is submitted: it may start unless it waits for others."""
    world.sim[0].arrived += 1
    if world.states[task].open == 0:
        queue(fixed, world, task)


@compiled
def queue(fixed: PoolConstants, world: PoolState, task: int) -> None:
    """Put a task among the pending, at its place in the order of submission."""
    sim, rank = world.sim[0], fixed.tasks[task].rank
    i = sim.pending
    while i > 0 and fixed.tasks[world.pending[i - 1]].rank > rank:
        world.pending[i] = world.pending[i - 1]
        i -= 1
    world.pending[i] = task
    sim.pending += 1
    world.fresh[sim.fresh] = task
    sim.fresh += 1
    world.states[task].status = PENDING


@compiled
def _unqueue(fixed: PoolConstants, world: PoolState, task: int) -> None:
    """Take a task from among the pending."""
    sim, rank = world.sim[0], fixed.tasks[task].rank
    low, high = 0, sim.pending - 1
    while low < high:
        middle = (low + high) >> 1
        if fixed.tasks[world.pending[middle]].rank < rank:
            low = middle + 1
        else:
            high = middle
    sim.pending -= 1
    for i in range(low, sim.pending):
        world.pending[i] = world.pending[i + 1]


@compiled
def start(fixed: PoolConstants, site: Site, world: PoolState, draft: Draft, task: int) -> None:
    """Start a pending task where ``draft`` says; the place is free."""
    state, now = world.states[task], world.sim[0].now
    _unqueue(fixed, world, task)
    first = fixed.tasks[task].first_held
    for i in range(draft.size[0]):
        world.held[first + i] = draft.devices[i]
    _occupy(fixed, site, world, task, draft.nodes[0], -1)
    state.parts = draft.size[1]
    state.row = _speed_row(fixed, site, world, draft, task)
    state.status, state.began, state.since, state.ready = RUNNING, now, now, now
    state.before = world.served[task]
    if state.preemptions == 0:
        state.start = now
    else:
        state.ready += fixed.tasks[task].restart
    world.task_node[task] = draft.nodes[0]
    _link(fixed, site, world, draft, task)
    state.speed = _speed(fixed, world, task)
    state.end = state.ready + state.left / state.speed
    add(world, task)
    _slow_neighbours(fixed, world, task)


@compiled
def finish(fixed: PoolConstants, site: Site, world: PoolState, task: int) -> None:
    """A running task has done its work; those that waited for it alone may start."""
    state = world.states[task]
    _stop(fixed, site, world, task)
    state.left, state.status = 0.0, ENDED
    world.sim[0].ended += 1
    for k in range(fixed.first_waiter[task], fixed.first_waiter[task + 1]):
        waiter = world.states[fixed.waiters[k]]
        waiter.open -= 1
        if waiter.open == 0 and fixed.tasks[fixed.waiters[k]].rank < world.sim[0].arrived:
            queue(fixed, world, fixed.waiters[k])


@compiled
def preempt(fixed: PoolConstants, site: Site, world: PoolState, task: int) -> None:
    """A running task gives up its devices and waits again."""
    sim, left = world.sim[0], world.states[task].left
    _stop(fixed, site, world, task)
    sim.futile = sim.futile + 1 if world.states[task].left == left else 0
    world.states[task].preemptions += 1
    queue(fixed, world, task)


@compiled
def _stop(fixed: PoolConstants, site: Site, world: PoolState, task: int) -> None:
    """Take a running task from its devices, and write down what it had of them."""
    sim, state = world.sim[0], world.states[task]
    integrate(world, task)
    count_service(fixed, world, task)
    state.fee += state.cost * (sim.now - state.began) / 3600.0
    drop(world, task)
    _log(fixed, site, world, task)
    _unlink(fixed, world, task)
    _occupy(fixed, site, world, task, world.task_node[task], 1)
    world.task_node[task] = -1
    _slow_neighbours(fixed, world, task)
    state.end, state.status = sim.now, WAITING


@inlined
def left_now(world: PoolState, task: int) -> float:
    """What is left of a running task now."""
    state, now = world.states[task], world.sim[0].now
    begun = max(state.since, state.ready)
    return state.left if now <= begun else max(state.left - (now - begun) * state.speed, 0.0)


@compiled
def integrate(world: PoolState, task: int) -> None:
    """Bring what is left of a running task up to now."""
    world.states[task].left = left_now(world, task)
    world.states[task].since = world.sim[0].now


@compiled
def count_service(fixed: PoolConstants, world: PoolState, task: int) -> None:
    """Bring the columns that views show of a running task up to now."""
    state, expected = world.states[task], fixed.tasks[task].expected
    done = fixed.tasks[task].work - left_now(world, task)
    world.remaining[task] = max(expected - done, 0.0) if expected >= 0.0 else expected
    world.served[task] = state.before + (world.sim[0].now - state.began)


@compiled
def _occupy(fixed: PoolConstants, site: Site, world: PoolState, task: int, node: int, sign: int) -> None:
    """Take (-1) or give back (1) the devices, CPUs and memory of a task."""
    sim, need = world.sim[0], site.needs[task]
    first = fixed.tasks[task].first_held
    end = first + need.devices
    placing.move(site, Room(world.free, world.cpus, world.memory), task, world.held, first, end, node, sign)
    cost = 0.0
    for i in range(first, end):
        device = world.held[i]
        cost += site.devices[device].price * need.share
        if world.free[device] > 1.0 - SLACK:
            world.free[device] = 1.0
    world.states[task].cost = cost
    sim.held -= sign * need.devices
    sim.free += sign * need.devices * need.share


@compiled
def _log(fixed: PoolConstants, site: Site, world: PoolState, task: int) -> None:
    """A segment for each device that the task had."""
    sim, first = world.sim[0], fixed.tasks[task].first_held
    for i in range(first, first + site.needs[task].devices):
        row = world.log[sim.log]
        row.task, row.device = task, world.held[i]
        row.start, row.end = world.states[task].began, sim.now
        sim.log += 1


@compiled
def _speed_row(fixed: PoolConstants, site: Site, world: PoolState, draft: Draft, task: int) -> int:
    """The row of the speed table for this placement: over kinds that differ, the slowest."""
    spread = min(draft.size[1], fixed.rows.shape[2]) - 1
    if draft.size[0] == 0:
        return fixed.rows[task, 0, spread]
    slowest = fixed.rows[task, site.devices[draft.devices[0]].kind, spread]
    for i in range(1, draft.size[0]):
        row = fixed.rows[task, site.devices[draft.devices[i]].kind, spread]
        if fixed.alone[row] < fixed.alone[slowest]:
            slowest = row
    return slowest


@compiled
def _link(fixed: PoolConstants, site: Site, world: PoolState, draft: Draft, task: int) -> None:
    """Enter the task in the lists of its nodes."""
    for i in range(draft.size[1]):
        k, node = fixed.tasks[task].first_part + i, draft.nodes[i]
        part, after = world.parts[k], world.first_part[node]
        part.node, part.task, part.previous, part.next = node, task, -1, after
        if after >= 0:
            world.parts[after].previous = k
        world.first_part[node] = k


@compiled
def _unlink(fixed: PoolConstants, world: PoolState, task: int) -> None:
    """Take the task from the lists of its nodes."""
    first = fixed.tasks[task].first_part
    for k in range(first, first + world.states[task].parts):
        part = world.parts[k]
        if part.previous >= 0:
            world.parts[part.previous].next = part.next
        else:
            world.first_part[part.node] = part.next
        if part.next >= 0:
            world.parts[part.next].previous = part.previous


@compiled
def _speed(fixed: PoolConstants, world: PoolState, task: int) -> float:
    """How fast a task runs next to those that it shares nodes with, each counted once."""
    state = world.states[task]
    speed = fixed.alone[state.row]
    if fixed.config[0].interferes == 0:
        return speed
    sim = world.sim[0]
    sim.stamp += 1
    state.beside = sim.stamp
    first = fixed.tasks[task].first_part
    for k in range(first, first + state.parts):
        j = world.first_part[world.parts[k].node]
        while j >= 0:
            other = world.states[world.parts[j].task]
            if other.beside != sim.stamp:
                other.beside = sim.stamp
                speed *= fixed.together[state.row, other.row]
            j = world.parts[j].next
    return speed


@compiled
def _slow_neighbours(fixed: PoolConstants, world: PoolState, task: int) -> None:
    """Set the speeds again of those on the task's nodes, which has come or gone."""
    if fixed.config[0].interferes == 0:
        return
    sim = world.sim[0]
    sim.stamp += 1
    mark = sim.stamp
    world.states[task].seen = mark
    first = fixed.tasks[task].first_part
    for k in range(first, first + world.states[task].parts):
        j = world.first_part[world.parts[k].node]
        while j >= 0:
            other = world.parts[j].task
            if world.states[other].seen != mark:
                world.states[other].seen = mark
                _change_speed(fixed, world, other)
            j = world.parts[j].next


@compiled
def _change_speed(fixed: PoolConstants, world: PoolState, task: int) -> None:
    state = world.states[task]
    integrate(world, task)
    state.speed = _speed(fixed, world, task)
    state.end = max(world.sim[0].now, state.ready) + state.left / state.speed
    renew(world, task)
