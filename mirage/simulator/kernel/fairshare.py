"""Fair share: decayed usage over the account tree, and the factor that it gives each association.

Sources: Slurm's "Classic Fairshare Algorithm" and "Fair Tree Fairshare Algorithm" pages. Usage is kept as a
value at a time and a rate, so that decay is exact at any time and an event costs one walk to the root:
with decay constant d = ln 2 / half-life, U(t) = U(s) exp(-d (t - s)) + rate (1 - exp(-d (t - s))) / d.
"""

from __future__ import annotations

import numpy as np

from mirage.simulator.kernel.compile import compiled
from mirage.simulator.kernel.layout import Fixed, Scratch, World


@compiled
def _settle(associations: np.ndarray, a: int, at: int, decay: float) -> None:
    """Bring the usage of association ``a`` up to the time ``at``."""
    row = associations[a]
    elapsed = at - row.at
    if elapsed > 0:
        if decay > 0.0:
            kept = np.exp(-decay * elapsed)
            row.usage = row.usage * kept + row.rate * (1.0 - kept) / decay
        else:
            row.usage += row.rate * elapsed
        row.at = at


@compiled
def change_rate(fixed: Fixed, world: World, association: int, billing: float) -> None:
    """Add ``billing`` (usage per second; negative at a job's end) to an association and its ancestors."""
    a = association
    while a >= 0:
        _settle(world.associations, a, world.sim[0].now, fixed.config[0].decay)
        world.associations[a].rate += billing
        a = world.associations[a].parent


@compiled
def _classic(fixed: Fixed, world: World) -> None:
    """F = 2 ** -(UE / S / damping), UE(child) = U + (UE(parent) - U) * share among siblings."""
    rows, root = world.associations, fixed.config[0].root
    total = rows[root].usage
    for a in range(rows.shape[0]):  # parents stand before their children
        row = rows[a]
        if a == root:
            row.level = 1.0 if total > 0.0 else 0.0
            continue
        used = row.usage / total if total > 0.0 else 0.0
        parent = rows[row.parent]
        row.level = used if row.parent == root else used + (parent.level - used) * row.shares
        if row.normal <= 0.0:
            row.factor = 0.0
        else:
            row.factor = 2.0 ** -(row.level / row.normal / fixed.config[0].dampening)


@compiled
def _level_fair_share(rows: np.ndarray, a: int) -> float:
    """LF = share among siblings / usage among siblings; unused: infinite; no shares: 0."""
    row = rows[a]
    if row.shares <= 0.0:
        return 0.0
    total = rows[row.parent].usage
    if row.usage <= 0.0 or total <= 0.0:
        return np.inf
    return row.shares / (row.usage / total)


@compiled
def _sorted_children(rows: np.ndarray, parent: int, stack: np.ndarray, top: int) -> int:
    """Push the children of ``parent`` on the stack, the best level last; returns the new top."""
    base = top
    child = rows[parent].first_child
    while child >= 0:
        i = top
        level = rows[child].level
        # Users stand before accounts of the same level, as Slurm ranks them.
        while i > base and (
            rows[stack[i - 1]].level > level
            or (rows[stack[i - 1]].level == level and rows[stack[i - 1]].user > rows[child].user)
        ):
            stack[i] = stack[i - 1]
            i -= 1
        stack[i] = child
        top += 1
        child = rows[child].next_sibling
    return top


@compiled
def _fair_tree(fixed: Fixed, world: World, scratch: Scratch) -> None:
    """Rank users by a depth-first walk, best level first; F = rank / users, equal siblings equal rank."""
    rows, users = world.associations, fixed.config[0].users_in_tree
    for a in range(rows.shape[0]):
        if a != fixed.config[0].root:
            rows[a].level = _level_fair_share(rows, a)
    stack = scratch.stack
    top = _sorted_children(rows, fixed.config[0].root, stack, 0)
    position, rank = users, users
    last_parent, last_level = -1, -1.0
    while top > 0:
        top -= 1
        a = stack[top]
        row = rows[a]
        if row.user == 1:
            if row.parent != last_parent or row.level != last_level:
                rank = position
            row.factor = rank / users
            position -= 1
            last_parent, last_level = row.parent, row.level
        else:
            last_parent = -1
            top = _sorted_children(rows, a, stack, top)


@compiled
def recalculate(fixed: Fixed, world: World, scratch: Scratch, at: int) -> None:
    """Recompute every association's fair-share factor as of ``at``; no job has started or ended since."""
    for a in range(world.associations.shape[0]):
        _settle(world.associations, a, at, fixed.config[0].decay)
    if fixed.config[0].fair_share == 1:
        _classic(fixed, world)
    elif fixed.config[0].fair_share == 2:
        _fair_tree(fixed, world, scratch)
