"""What the owner of a pending job can do to it, measured on a running testbed.

Needs root (it acts as two ordinary users and as root), the state directory of a testbed (its ``env`` and, with a
fast clock, its ``clock.json``) and a partition without other jobs. Ages are visible where PriorityWeightAge is
large and PriorityMaxAge about a day. The settings that matter (PriorityFlags, AccountingStorageEnforce) are read
from the controller and printed with the results.

    steering.py ageing --state DIR      every method: age, eligibility, place in the plan, next to an untouched job
    steering.py starts --state DIR      idle nodes: from the method to the start; a niced job in a hole of the plan
    steering.py restraints --state DIR  idle nodes: what holds a successor, whether it ages, and its release
    steering.py ceilings --state DIR    MaxSubmitJobs and MaxJobsAccrue, and the RPCs of each method
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bed import Testbed

if TYPE_CHECKING:
    from collections.abc import Callable

OWNER, OTHER = "alice", "bob"
HIGH_NICE = 1_000_000


# --- ageing


@dataclass(frozen=True, slots=True)
class Lever:
    """A way of submitting a job, what is done to it after one phase, and after two. ``!``: root does it."""

    name: str
    options: tuple[str, ...] = ()
    first: str = ""
    second: str = ""


UPDATE = "scontrol update jobid={job}"
LEVERS = (
    Lever("left alone"),
    Lever("submitted held, released", ("-H",), "", "scontrol release {job}"),
    Lever("held later, released", (), "scontrol hold {job}", "scontrol release {job}"),
    Lever("submitted with high nice, nice 0", (f"--nice={HIGH_NICE}",), "", f"{UPDATE} nice=0"),
    Lever("high nice later, nice 0", (), f"{UPDATE} nice={HIGH_NICE}", f"{UPDATE} nice=0"),
    Lever("nice below 0", (), "", f"{UPDATE} nice=-1"),
    Lever("submitted with begin, StartTime=now", ("--begin=now+10hours",), "", f"{UPDATE} StartTime=now"),
    Lever("begin later, StartTime=now", (), f"{UPDATE} StartTime=now+10hours", f"{UPDATE} StartTime=now"),
    Lever("begin in the past, again", (), "", f"{UPDATE} StartTime=now"),
    Lever("begin that comes", ("--begin=now+{phase}seconds",)),
    Lever("submitted dependent, removed", ("-d", "afterany:{blocker}"), "", f"{UPDATE} dependency="),
    Lever("submitted dependent, met", ("-d", "afterany:{helper}"), "", "scancel {helper}"),
    Lever("dependent later, removed", (), f"{UPDATE} dependency=afterany:{{blocker}}", f"{UPDATE} dependency="),
    Lever("time limit down", (), f"{UPDATE} TimeLimit=30", ""),
    Lever("time limit up", (), "", f"{UPDATE} TimeLimit=90"),
    Lever("held by root, released by owner", (), "!scontrol hold {job}", "scontrol release {job}"),
    Lever("uhold by root, released by owner", (), "!scontrol uhold {job}", "scontrol release {job}"),
    Lever("held by owner, released by root", (), "scontrol hold {job}", "!scontrol release {job}"),
    Lever("niced, not held, released by root", (f"--nice={HIGH_NICE}",), "", "!scontrol release {job}"),
    Lever("top", (), "", "scontrol top {job}"),
    Lever("requeuehold while pending", (), "", "scontrol requeuehold {job}"),
)


@dataclass(frozen=True, slots=True)
class Sight:
    """A job at one moment; times in seconds after its submission, ``None`` where Slurm has none."""

    priority: int
    reason: str
    eligible: int | None
    accrue: int | None
    planned: int | None
    age: int | None
    """By sprio (s); it leaves out held jobs and those whose begin time has not come."""


@dataclass(slots=True)
class Trial:
    """One job under one lever."""

    lever: Lever
    job: str
    sights: dict[str, Sight] = field(default_factory=dict)
    replies: list[str] = field(default_factory=list)


def _instant(text: str, origin: int) -> int | None:
    return int(text) - origin if text.isdigit() else None


def look(bed: Testbed, job: str, longest_age: int) -> Sight:
    """The state of the job now."""
    row = bed.show(job)
    submitted = int(row["SubmitTime"])
    factor = bed.run("root", "sprio", "-h", "-j", job, "-o", "%a")[1]
    return Sight(
        int(row["Priority"]),
        row["Reason"],
        _instant(row["EligibleTime"], submitted),
        _instant(row["AccrueTime"], submitted),
        _instant(row["StartTime"], submitted),
        round(float(factor) * longest_age) if re.fullmatch(r"[0-9.]+", factor) else None,
    )


def _seconds(text: str) -> int:
    days, _, clock = text.partition("-") if "-" in text else ("0", "", text)
    h, m, s = (int(x) for x in clock.split(":"))
    return ((int(days) * 24 + h) * 60 + m) * 60 + s


def ageing(bed: Testbed, phase: int) -> list[Trial]:
    """All methods together on a full partition: applied after ``phase`` and after twice ``phase`` seconds."""
    size, period = f"-N{bed.nodes()}", _seconds(bed.setting("PriorityCalcPeriod"))
    longest = _seconds(bed.setting("PriorityMaxAge"))
    blocker = bed.submit(OTHER, size, "--exclusive", "-t", "2-00:00:00")
    while bed.show(blocker)["JobState"] != "RUNNING":
        time.sleep(0.05)
    names = {"blocker": blocker, "helper": bed.submit(OWNER, "--begin=now+1day", "-t", "60"), "phase": str(phase)}
    begin, trials = bed.now(), []
    for lever in LEVERS:
        options = (o.format(**names) for o in lever.options)
        trials.append(Trial(lever, bed.submit(OWNER, size, "--exclusive", "-t", "60", *options)))
    for number, act in enumerate(("first", "second"), 1):
        bed.sleep_until(begin + number * phase)
        for trial in trials:
            trial.sights[f"before {act}"] = look(bed, trial.job, longest)
            _act(bed, trial, getattr(trial.lever, act), names)
            trial.sights[f"right after {act}"] = look(bed, trial.job, longest)
        bed.sleep_until(bed.now() + period + 60)
        for trial in trials:
            trial.sights[f"a period after {act}"] = look(bed, trial.job, longest)
    bed.cancel(blocker, names["helper"], *(t.job for t in trials))
    return trials


def _act(bed: Testbed, trial: Trial, command: str, names: dict[str, str]) -> None:
    if not command:
        return
    user = "root" if command.startswith("!") else OWNER
    status, text = bed.run(user, *command.lstrip("!").format(job=trial.job, **names).split())
    trial.replies.append(text if status or text else "ok")


def _print_ageing(trials: list[Trial]) -> None:
    alone = trials[0].sights
    _print("lever; reply | moment: age short of the job left alone (s), priority, reason, eligible, accrue, plan")
    for t in trials:
        _print(f"{t.lever.name}; {' / '.join(t.replies)}")
        for moment, s in t.sights.items():
            twin = alone[moment].age
            short = "-" if s.age is None or twin is None else str(twin - s.age)
            row = f"{short:>7} {s.priority:>7} {s.reason:<14} {s.eligible!s:>7} {s.accrue!s:>7} {s.planned!s:>7}"
            _print(f"    {moment:<22} {row}")


# --- starts


def _seconds_to_start(bed: Testbed, job: str, since: float) -> float:
    limit = time.time() + 180
    while (row := bed.show(job))["JobState"] == "PENDING":
        if time.time() > limit:
            return float("inf")
        time.sleep(0.02)
    return max(0.0, float(row["StartTime"]) - since) if bed.rate > 1 else time.time() - since


def starts(bed: Testbed, repeats: int) -> dict[str, list[float]]:
    """On idle nodes: seconds from the lever to the start, every lever ``repeats`` times."""
    levers: dict[str, tuple[tuple[str, ...], str]] = {
        "submitted": ((), ""),
        "submitted with high nice": ((f"--nice={HIGH_NICE}",), ""),
        "released": (("-H",), "scontrol release {job}"),
        "StartTime=now": (("--begin=now+10hours",), f"{UPDATE} StartTime=now"),
        "dependency removed": (("-d", "afterany:{helper}"), f"{UPDATE} dependency="),
    }
    helper = bed.submit(OWNER, "-H", "-t", "60")
    waits: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, (options, command) in levers.items():
            since = bed.now()
            job = bed.submit(OWNER, "-N1", "-t", "60", *(o.format(helper=helper) for o in options))
            if command:
                bed.sleep_until(bed.now() + 3 * bed.rate)
                since = bed.now()
                bed.run(OWNER, *command.format(job=job).split())
            waits.setdefault(name, []).append(_seconds_to_start(bed, job, since))
            bed.cancel(job)
    bed.cancel(helper)
    return waits


def hole(bed: Testbed) -> float:
    """Seconds until a niced short job starts on a node that a wider job above it waits to complete."""
    size = bed.nodes()
    blocker = bed.submit(OTHER, f"-N{size - 1}", "--exclusive", "-t", "10:00:00")
    while bed.show(blocker)["JobState"] != "RUNNING":
        time.sleep(0.05)
    wide = bed.submit(OTHER, f"-N{size}", "--exclusive", "-t", "60")
    bed.sleep_until(bed.now() + 3 * bed.rate)
    since = bed.now()
    niced = bed.submit(OWNER, "-N1", "--exclusive", "-t", "60", f"--nice={HIGH_NICE}")
    waited = _seconds_to_start(bed, niced, since)
    bed.cancel(niced, wide, blocker)
    return waited


# --- restraints


@dataclass(frozen=True, slots=True)
class Restraint:
    """A way to hold a successor of {before} (on {node}) in the queue, and to release it."""

    options: tuple[str, ...]
    let_go: str


RESTRAINTS = {
    "hold": Restraint(("-H",), "scontrol release {job}"),
    "begin": Restraint(("--begin=now+2days",), f"{UPDATE} StartTime=now"),
    "dependency": Restraint(("-d", "afterany:{before}"), f"{UPDATE} dependency="),
    "nice": Restraint((f"--nice={HIGH_NICE}",), f"{UPDATE} nice=0"),
    "predecessor's node": Restraint(("-w", "{node}"), f"{UPDATE} ReqNodeList="),
    "array of one at a time": Restraint(("-a", "1-2%1"), f"{UPDATE} ArrayTaskThrottle=2"),
}


def restraints(bed: Testbed, phase: int) -> dict[str, str]:
    """Next to an idle node: does the successor start and age, where is it planned, when does it start?"""
    found = {}
    for name, restraint in RESTRAINTS.items():
        array = "-a" in restraint.options
        options = restraint.options if array else ()
        before = bed.submit(OWNER, "-N1", "--exclusive", "-t", "10:00:00", *options)
        first = before + "_1" if array else before
        while bed.show(first).get("JobState") != "RUNNING":
            time.sleep(0.05)
        names = {"before": before, "node": bed.show(first)["NodeList"]}
        begin = bed.now()
        words = (o.format(**names) for o in restraint.options)
        job = before + "_2" if array else bed.submit(OWNER, "-N1", "--exclusive", "-t", "60", *words)
        bed.sleep_until(begin + phase)
        found[name] = _let_go(bed, restraint, job, float(bed.show(first)["EndTime"]))
        bed.cancel(before, job.partition("_")[0])
    return found


def _let_go(bed: Testbed, restraint: Restraint, job: str, end: float) -> str:
    row = bed.show(job)
    kept = row["JobState"] == "PENDING"
    age = int(bed.now() - float(row["AccrueTime"])) if row["AccrueTime"].isdigit() else 0
    text = f"{row['JobState']} ({row['Reason']}), age {age} s"
    if kept and row["StartTime"].isdigit():
        text += f", planned {float(row['StartTime']) - end:+.0f} s from the predecessor's end"
    since = bed.now()
    reply = bed.run(OWNER, *restraint.let_go.format(job=job.partition("_")[0]).split())[1]
    return f"{text}; released: {reply} starts after {_seconds_to_start(bed, job, since):.0f} s" if kept else text


# --- ceilings and costs


def ceilings(bed: Testbed) -> dict[str, str]:
    """Whether a held job counts against MaxSubmitJobs, and what MaxJobsAccrue does to niced jobs."""
    blocker = bed.submit(OTHER, f"-N{bed.nodes()}", "--exclusive", "-t", "2-00:00:00")
    _limit(bed, "MaxSubmitJobs=1")
    held = bed.submit(OWNER, "-H", "-t", "60")
    refusal = bed.run(OWNER, "sbatch", "-p", bed.partition, "-t", "60", "--wrap", "true")[1]
    _limit(bed, "MaxSubmitJobs=-1 MaxJobsAccrue=1")
    nice = f"--nice={HIGH_NICE}"
    jobs = [bed.submit(OWNER, "-t", "60", nice) for _ in range(2)]
    bed.sleep_until(bed.now() + 10 * bed.rate)
    submitted = float(bed.show(jobs[0])["SubmitTime"])
    accrue = [bed.show(j)["AccrueTime"] for j in jobs]
    bed.cancel(jobs[0])
    bed.sleep_until(bed.now() + 10 * bed.rate)
    after = bed.show(jobs[1])["AccrueTime"]
    _limit(bed, "MaxJobsAccrue=-1")
    bed.cancel(held, jobs[1], blocker)
    return {
        "second job next to a held one, MaxSubmitJobs=1": refusal,
        "submission of two niced jobs, MaxJobsAccrue=1": str(int(submitted)),
        "their AccrueTime": " and ".join(accrue),
        "AccrueTime of the second after the first has left": after,
    }


def _limit(bed: Testbed, limit: str) -> None:
    bed.run("root", "sacctmgr", "-i", "modify", "user", OWNER, "set", *limit.split())
    bed.sleep_until(bed.now() + 3 * bed.rate)


def rpcs(bed: Testbed) -> dict[str, str]:
    """RPCs of the owner that each command sends, by sdiag."""
    job = bed.submit(OWNER, "-H", "-t", "60")
    commands: tuple[str, ...] = ("scontrol hold {job}", "scontrol release {job}", "scontrol hold {job}")
    commands += (f"{UPDATE} nice=5", f"{UPDATE} StartTime=now+1hour", f"{UPDATE} TimeLimit=30")
    sent: dict[str, str] = {}
    for command in (*commands, f"{UPDATE},{job} nice=6", "squeue -h --start", "scancel {job}"):
        bed.run("root", "sdiag", "-r")
        bed.run(OWNER, *command.format(job=job).split())
        text = bed.run("root", "sdiag")[1].partition("by message type")[2].partition("Remote")[0]
        found = re.findall(r"(REQUEST_(?!STATS)\w+) .*count:(\d+) +ave_time:(\d+)", text)
        sent[command] = ", ".join(f"{n} x{c} {int(int(us) / bed.rate)} us" for n, c, us in found)
    return sent


# --- command line


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _run_ageing(bed: Testbed, options: argparse.Namespace) -> object:
    runs = [ageing(bed, options.phase) for _ in range(options.repeats)]
    for trials in runs:
        _print_ageing(trials)
    return [[asdict(t) for t in trials] for trials in runs]


def _run_starts(bed: Testbed, options: argparse.Namespace) -> object:
    waits = starts(bed, options.repeats)
    waits["niced, in a hole of the plan"] = [hole(bed) for _ in range(options.repeats)]
    for name, values in waits.items():
        middle, worst = statistics.median(values), max(values)
        _print(f"{name:<32} median {middle:6.1f} s, {min(values):.1f} to {worst:.1f}")
    return waits


def _run_restraints(bed: Testbed, options: argparse.Namespace) -> object:
    runs = [restraints(bed, options.phase) for _ in range(options.repeats)]
    for name in RESTRAINTS:
        for found in runs:
            _print(f"{name:<24} {found[name]}")
    return runs


def _run_ceilings(bed: Testbed, _: argparse.Namespace) -> object:
    found = ceilings(bed) | rpcs(bed)
    for name, value in found.items():
        _print(f"{name}: {value}")
    return found


EXPERIMENTS: dict[str, Callable[[Testbed, argparse.Namespace], object]] = {
    "ageing": _run_ageing,
    "starts": _run_starts,
    "restraints": _run_restraints,
    "ceilings": _run_ceilings,
}
SETTINGS = ("SLURM_VERSION", "PriorityFlags", "AccountingStorageEnforce", "PriorityCalcPeriod", "PriorityMaxAge")


def main() -> None:
    """Run one experiment; print it, and keep everything seen in ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--state", type=Path, required=True, help="the testbed's state directory")
    parser.add_argument("--partition", default="cpu", help="partition of at least two nodes without other jobs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--phase", type=int, default=2_400, help="Slurm's seconds between the steps of ageing")
    parser.add_argument("--json", type=Path, help="write all measured values as JSON")
    options = parser.parse_args()
    bed = Testbed.open(options.state, options.partition)
    settings = {name: bed.setting(name) for name in SETTINGS}
    _print(", ".join(f"{k}={v}" for k, v in settings.items()))
    found = EXPERIMENTS[options.experiment](bed, options)
    if options.json:
        options.json.write_text(json.dumps({"settings": settings, "found": found}, indent=1))


if __name__ == "__main__":
    main()
