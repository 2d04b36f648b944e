"""Run a workload on a separate testbed and record it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepalive.surroundings import Surroundings
from onehost import accounts, cluster
from onehost.errors import TestbedError
from onehost.layout import Layout
from onehost.people import ensure_users
from onehost.processes import recorded, recorded_names
from onehost.programs import slurm_version
from onehost.settings import Settings
from recording import harvest
from recording.player import Player, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recording.plan import Workload
    from recording.player import Played

FORMAT = 1
PREFERENCE = -15
"""Nice value of the daemons' sessions."""
LOOK_EVERY = 600
"""Poll interval of the queue, in Slurm's seconds."""


def record(
    workloads: Sequence[Workload], directory: Path, speed: int, base_port: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Start a testbed, run the workloads one after the other, wipe the testbed; returns the records.

    All workloads must use the same cluster. Raises ``TestbedError`` where testbed or accounts cannot be created.
    """
    first = workloads[0]
    settings = Settings(str(directory), speed, first.nodes, base_port, True, "", first.conf_lines)
    layout = Layout(directory)
    ensure_users(sorted({user for workload in workloads for user in workload.users}))
    cluster.start(settings, say)
    try:
        prefer(layout)
        make_accounts(layout, first)
        for workload in workloads:
            yield played(workload, Surroundings.of(directory), say)
    finally:
        cluster.wipe(layout, say)


def prefer(layout: Layout) -> None:
    """Prefer the testbed's daemons on a busy machine, where the kernel groups processes by session."""
    for process in filter(None, (recorded(name, layout) for name in recorded_names(layout))):
        group = Path(f"/proc/{process.pid}/autogroup")
        if group.exists():
            group.write_text(f"{PREFERENCE}\n")


def make_accounts(layout: Layout, workload: Workload) -> None:
    """Create the accounts that the workload adds to those of the testbed. Raises ``TestbedError``."""
    if not workload.accounts:
        return
    done = accounts.ask(layout, "-iQ", commands="\n".join(workload.accounts) + "\n")
    if done.returncode or "error" in done.stderr.lower():
        raise TestbedError(f"sacctmgr did not create the accounts of {workload.name}: {done.stdout}{done.stderr}")


def played(workload: Workload, around: Surroundings, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a workload on a testbed without jobs until its last job ends; returns the record."""
    say(f"{workload.name}: {len(workload.jobs)} jobs at x{around.rate:g}")
    player = Player(around, workload)
    with Watcher(around, LOOK_EVERY) as watcher:
        done = player.play(say)
        harvest.wait_for_last(around)
    return document(workload, around, done, watcher.looks)


def document(
    workload: Workload, around: Surroundings, done: Played, looks: list[dict[str, Any]]
) -> dict[str, Any]:
    """The record of a run, as JSON."""
    told = harvest.log_of(around)
    lags = sorted(done.lags)
    return {
        "format": FORMAT,
        "workload": workload.name,
        "seed": workload.seed,
        "slurm": slurm_version(),
        "speed": around.rate,
        "begin": done.begin,
        "boot": told.boot,
        "lag": {"median": lags[len(lags) // 2], "most": lags[-1]},
        "files": harvest.configuration(around),
        "jobs": list(_jobs(workload, done, harvest.accounting(around), told.started)),
        "changes": done.changes,
        "refused": done.refused,
        "expected": dict(workload.expected),
        "instants": {"submitted": told.submitted, "ended": told.ended, "freed": told.freed},
        "passes": [each for each in told.passes if each[0] >= done.begin],
        "looks": looks,
    }


def _jobs(
    workload: Workload, done: Played, rows: list[dict[str, str]], started: dict[str, str]
) -> Iterator[dict[str, Any]]:
    """Every job as requested and as it ran, array tasks one by one; a rejected job has no run."""
    by_id = {row["JobIDRaw"]: row for row in rows}
    tasks = _tasks(rows, set(map(str, done.ids.values())))
    for job in workload.jobs:
        number = str(done.ids.get(job.name, 0))
        asked = {key: value for key, value in asdict(job).items() if value not in ("", 0, False)}
        found = [_outcome(by_id[each], started) for each in (tasks.get(number, []) or [number]) if each in by_id]
        yield {**asked, "id": int(number), "outcomes": found}


def _tasks(rows: list[dict[str, str]], arrays: set[str]) -> dict[str, list[str]]:
    """Raw ids of an array's tasks in order, by the array's id, where sacct prints ``ID_TASK``."""
    found: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        array, _, task = row["JobID"].partition("_")
        if array in arrays and task.isdigit():
            found.setdefault(array, []).append((int(task), row["JobIDRaw"]))
    return {array: [raw for _, raw in sorted(each)] for array, each in found.items()}


def _outcome(row: dict[str, str], started: dict[str, str]) -> dict[str, Any]:
    times = {key: _time(row[key.capitalize()]) for key in ("submit", "eligible", "start", "end")}
    return {
        "id": int(row["JobIDRaw"]),
        **times,
        "state": row["State"].split()[0],
        "nodes": row["NodeList"],
        "by": started.get(row["JobIDRaw"], ""),
    }


def _time(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) else None
