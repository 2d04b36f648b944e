"""Limits of associations, QOS and arrays: groups of jobs with ceilings on jobs and resources in use.

Every limit of Slurm that is checked when a job would start (MaxJobs, GrpJobs, GrpTRES, MaxTRESPerUser, an
array's ``%`` throttle...) becomes one group; a job belongs to up to ``GROUPS_PER_JOB`` groups.
"""

from __future__ import annotations

from mirage.simulator.kernel.compile import compiled, inlined
from mirage.simulator.kernel.layout import (
    FIRST_LIMIT,
    G_JOBS,
    G_MAX_JOBS,
    G_SUBMIT,
    G_SUBMITS,
    G_TRES,
    GROUPS_PER_JOB,
    LIMIT_CODES,
    NONE,
    Fixed,
    World,
)


@inlined
def obstacle(fixed: Fixed, world: World, slot: int) -> int:
    """The reason of the first limit that keeps the job from starting, NONE if there is none.

    FIRST_LIMIT + group * LIMIT_CODES, + 0 for its ceiling on jobs, + 1 + r for that on resource r.
    """
    resources = fixed.config[0].resources + 1
    total = resources - 1
    first = total + resources
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        group = world.groups[g]
        if group[G_MAX_JOBS] >= 0 and group[G_JOBS] >= group[G_MAX_JOBS]:
            return FIRST_LIMIT + g * LIMIT_CODES
        for r in range(resources):
            ceiling = group[G_TRES + r]
            if ceiling >= 0 and group[G_TRES + resources + r] + world.needs[slot, total + r] > ceiling:
                return FIRST_LIMIT + g * LIMIT_CODES + 1 + r
    return NONE


@compiled
def count_running(fixed: Fixed, world: World, slot: int, sign: int) -> None:
    """Add (+1) or take away (-1) a running job's use from its groups."""
    resources = fixed.config[0].resources + 1
    total = resources - 1
    first = total + resources
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        world.groups[g, G_JOBS] += sign
        for r in range(resources):
            world.groups[g, G_TRES + resources + r] += sign * world.needs[slot, total + r]


@compiled
def count_submitted(fixed: Fixed, world: World, slot: int, sign: int) -> None:
    """Add or take away a job from its groups' jobs in the queue (pending and running)."""
    first = 2 * fixed.config[0].resources + 1
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        world.groups[g, G_SUBMITS] += sign


@inlined
def may_submit(fixed: Fixed, world: World, slot: int) -> bool:
    """Whether MaxSubmitJobs of every group allows one more."""
    first = 2 * fixed.config[0].resources + 1
    for k in range(GROUPS_PER_JOB):
        g = world.needs[slot, first + k]
        if g < 0:
            break
        if 0 <= world.groups[g, G_SUBMIT] <= world.groups[g, G_SUBMITS]:
            return False
    return True
