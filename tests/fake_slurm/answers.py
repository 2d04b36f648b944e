"""Output of each of Slurm's commands, from the state of a simulation, in the words of Slurm 22.05."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fake_slurm.options import BadOption, read_submission
from fake_slurm.shown import shown_to_owner

from mirage.domain.errors import SubmissionRejected, UnknownJob
from mirage.domain.job import ABSENT, NEVER, Job, JobId, JobState
from mirage.slurm import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_slurm.fake import Call, FakeSlurm

REFUSALS = {
    "PartitionTimeLimit": "Requested time limit is invalid (missing or exceeds some limit)",
    "PartitionInvalid": "Invalid partition name specified",
    "PartitionNodeLimit": "Node count specification invalid",
    "InvalidFeature": "Invalid feature specification",
    "InvalidGRES": "Invalid generic resource (gres) specification",
    "InvalidAccount": "Invalid account or account/partition combination specified",
    "InvalidQOS": "Invalid qos specification",
    "ReservationInvalid": "Requested reservation is invalid",
    "ReservationAccess": "Access denied to requested reservation",
    "BadConstraints": "Requested node configuration is not available",
    "ReqNodeNotAvail": "Requested node configuration is not available",
}
HEADINGS = {
    "JobID": "JOBID",
    "JobArrayID": "JOBID",
    "State": "STATE",
    "UserName": "USER",
    "Account": "ACCOUNT",
    "SubmitTime": "SUBMIT_TIME",
    "EligibleTime": "ELIGIBLE_TIME",
    "StartTime": "START_TIME",
    "EndTime": "END_TIME",
    "TimeLimit": "TIME_LIMIT",
    "NumNodes": "NODES",
    "Partition": "PARTITION",
    "QOS": "QOS",
    "PriorityLong": "PRIORITY",
    "Nice": "NICE",
    "exit_code": "EXIT_CODE",
    "ReqNodes": "REQ_NODES",
    "NodeList": "NODELIST",
    "tres-alloc": "TRES_ALLOC",
    "Reason": "REASON",
    "Name": "NAME",
    "Comment": "COMMENT",
}
_LIMIT = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
_INVALID_ID = "Invalid job id specified"


@dataclass(frozen=True)
class Answer:
    out: str
    err: str = ""
    status: int = 0


def answer_call(fake: FakeSlurm, call: Call) -> Answer:
    return COMMANDS[call.command](fake, call)


def option(call: Call, *names: str) -> str:
    """The value of ``--name=value`` (the last one); empty where it is not given."""
    found = [word.partition("=")[2] for word in call.arguments if word.split("=")[0] in names]
    return found[-1] if found else ""


# squeue


def squeue(fake: FakeSlurm, call: Call) -> Answer:
    if "--format=%u|%a|%q" in call.arguments:
        return told(fake, call)
    user = option(call, "--user")
    rows = [row for row in _queue(fake, call) if user in ("", None, row["UserName"])]
    if wanted := option(call, "--jobs"):
        rows = [row for row in rows if row["JobID"] in wanted.split(",")]
        if not rows:
            return Answer("", f"slurm_load_jobs error: {_INVALID_ID}\n", 1)
    if option(call, "--format"):
        return Answer("".join(_formatted(row, option(call, "--format")) + "\n" for row in rows))
    shape = option(call, "--Format") or call.environment["SQUEUE_FORMAT2"]
    columns = [word.partition(":") for word in shape.split(",")]
    heading = "".join(f"{HEADINGS[name]}{suffix}" for name, _, suffix in columns)
    lines = ["".join(f"{row[name]}{suffix}" for name, _, suffix in columns) for row in rows]
    shown = lines if "--noheader" in call.arguments else [heading, *lines]
    return Answer("".join(f"{line}\n" for line in shown))


def _formatted(row: dict[str, str], shape: str) -> str:
    letters = {"%T": "State", "%u": "UserName", "%Q": "PriorityLong", "%r": "Reason", "%k": "Comment"}
    letters |= {"%V": "SubmitTime", "%i": "JobArrayID"}
    return re.sub("%.", lambda letter: row[letters[letter[0]]], shape)


def _queue(fake: FakeSlurm, call: Call) -> list[dict[str, str]]:
    simulation = fake.simulation
    own = {job.job_id: job for job in simulation.jobs()}
    planned = simulation.planned_starts()
    rows = []
    for columns, state in zip(simulation.columns(), (JobState.PENDING, JobState.RUNNING), strict=True):
        for k in range(len(columns)):
            job_id = JobId(int(columns.job_id[k]))
            job = own.pop(job_id, None) or Job(
                job_id,
                "trace",
                simulation.users[int(columns.user[k])],
                simulation.partition_names[int(columns.partition[k])],
                int(columns.nodes[k]),
                int(columns.limit[k]),
                state,
                int(columns.submit[k]),
                int(columns.start[k]),
                int(columns.start[k] + columns.limit[k]) if state is JobState.RUNNING else ABSENT,
                reason="Priority" if state is JobState.PENDING else "",
            )
            eligible, priority = int(columns.eligible[k]), int(columns.priority[k])
            rows.append(_row(fake, call, job, eligible, 0 if job.held else priority, planned.get(job_id, ABSENT)))
    horizon = simulation.now - fake.min_job_age
    recent = [job for job in own.values() if job.end >= horizon]
    recent += [job for job in _given_again(fake).values() if not job.state.finished or job.end >= horizon]
    return rows + [_row(fake, call, job, job.submit, 0, ABSENT) for job in recent]


def _given_again(fake: FakeSlurm) -> dict[JobId, Job]:
    """Jobs of users' own that have the numbers of jobs that the controller forgot."""
    return getattr(fake, "given_again", {})


def _row(fake: FakeSlurm, call: Call, job: Job, eligible: int, priority: int, plan: int) -> dict[str, str]:
    waits = job.state is JobState.PENDING
    start = plan if waits else job.start if job.start != ABSENT else job.end
    comment = fake.comments.get(job.job_id, job.tag)
    code = job.exit_code
    return {
        "JobID": str(job.job_id),
        "JobArrayID": str(job.job_id),
        "State": fake.state_word(job),
        "UserName": job.user,
        "Account": f"{job.user}s-account",
        "SubmitTime": _time(call, job.submit, "N/A"),
        "EligibleTime": _time(call, eligible, "N/A"),
        "StartTime": _time(call, start, "N/A"),
        "EndTime": _time(call, job.end, "N/A"),
        "TimeLimit": _limit(job.limit),
        "NumNodes": str(job.nodes),
        "Partition": job.partition,
        "QOS": "normal",
        "PriorityLong": str(priority),
        "Nice": str(job.nice),
        "exit_code": str(code - 128 if code > 128 else code << 8),
        "ReqNodes": job.node_list if waits else "",
        "NodeList": "" if waits else job.node_list,
        "tres-alloc": f"cpu={job.nodes},node={job.nodes},billing={job.nodes}",
        "Reason": (_held(fake, job) if job.held else job.reason) or "None",
        "Name": job.name,
        "Comment": comment or "(null)",
    }


def _held(fake: FakeSlurm, job: Job) -> str:
    return fake.reasons.get(job.job_id, "JobHeldAdmin" if job.job_id in fake.held_by_admin else "JobHeldUser")


def _limit(seconds: int) -> str:
    """squeue prints limits under an hour as minutes and seconds."""
    text = duration.spell(seconds)
    return re.sub(r"^00:0?(?=\d+:)", "", text) if text.startswith("00:") else text.removeprefix("0")


def _time(call: Call, instant: int, absent: str) -> str:
    if instant == ABSENT or instant >= NEVER:
        return absent
    if (shape := call.environment.get("SLURM_TIME_FORMAT", "")).startswith("%s"):
        return shape.replace("%s", str(instant))
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")


# sinfo


def sinfo(fake: FakeSlurm, call: Call) -> Answer:
    shape = option(call, "--format") or call.environment["SINFO_FORMAT"]
    rows = [["PARTITION", "STATE", "NODES"]]
    for p in fake.simulation.partitions():
        counts = {"idle": p.idle, "allocated": p.allocated, "down": p.down}
        rows += [[p.name, state, str(count)] for state, count in counts.items() if count]
    shown = rows[1:] if "--noheader" in call.arguments else rows
    named = [dict(zip(("%R", "%T", "%D"), row, strict=True)) for row in shown]
    return Answer("".join(re.sub(r"%[RTD]", lambda m, row=row: row[m[0]], shape) + "\n" for row in named))


# sbatch


def sbatch(fake: FakeSlurm, call: Call) -> Answer:
    try:
        given = read_submission(call.arguments, call.stdin, call.user)
    except BadOption as fault:
        return Answer("", f"sbatch: error: {fault}\n", 1)
    lead = "allocation failure: " if given.test_only else "sbatch: error: Batch job submission failed: "
    try:
        if given.test_only:
            start = fake.simulation.estimate_start(given.request)
            nodes = f"using 1 processors on nodes fake in partition {given.request.partition}"
            said = f"sbatch: Job 1 to start at {_time(call, start, 'Unknown')} {nodes}\n"
            return Answer("", said)
        run = fake.runs.get(given.request.tag, given.run)
        job_id = fake.simulation.submit(given.request, run.runtime, run.outcome, run.exit_code)
    except SubmissionRejected as refusal:
        sentence = REFUSALS.get(refusal.reason)
        word = "" if sentence else f"sbatch: error: {refusal.reason}\n"
        return Answer("", f"{word}{lead}{sentence or _LIMIT}\n", 1)
    fake.batches[job_id] = call
    return Answer(f"{job_id}\n" if given.parsable else f"Submitted batch job {job_id}\n")


# scancel, scontrol


def scancel(fake: FakeSlurm, call: Call) -> Answer:
    job_id = JobId(int(call.arguments[-1]))
    signal = option(call, "--signal")
    said = f"scancel: {'Signal ' + signal + ' to' if signal else 'Terminating'} job {job_id}\n"
    found = _known(fake, job_id)
    problem = ""
    if _is_touched(fake, job_id) or found is None:
        problem = _INVALID_ID
    elif call.user not in (found.user, "root", *fake.operators):
        problem = "Access/permission denied"
    elif found.state.finished:
        problem = _INVALID_ID if signal else "Job/step already completing or completed"
    elif signal and found.state is not JobState.RUNNING:
        problem = "Job can not be altered now, try again later"
    elif not signal:
        fake.simulation.cancel(job_id)
    # An unknown or ended job is no failure to scancel.
    status = int(bool(problem) and (bool(signal) or "denied" in problem))
    error = f"scancel: error: Kill job error on job id {job_id}: {problem}\n" if problem else ""
    return Answer("", said + error, status)


def told(fake: FakeSlurm, call: Call) -> Answer:
    """The output that the test has set for this subject; without it the cluster has no such object."""
    subjects = ("--version", "config", "job", "partition", "reservation", "assoc", "qos", "user", "--parsable2")
    subjects += ("--format=%u|%a|%q",)
    subject = next(word for word in subjects if word in call.arguments)
    answer = {("scontrol", "config"): "ClusterName = fake\n", **fake.told}.get((call.command, subject))
    if answer is None:
        return Answer("", "You are not running a supported accounting_storage plugin\n", 1)
    return Answer(answer)


def _shown(fake: FakeSlurm, call: Call) -> Answer:
    if call.arguments[:3] == ["--oneliner", "show", "job"] and hasattr(fake.simulation, "sharing"):
        job_id = JobId(int(call.arguments[3]))
        known = _known(fake, job_id)
        return Answer(fake.simulation.sharing(job_id)) if known else Answer("", f"{_INVALID_ID}\n", 1)
    if call.arguments[:2] not in (["show", "job"], ["write", "batch_script"]):
        return told(fake, call)
    job_id = JobId(int(call.arguments[2]))
    return Answer(*shown_to_owner(fake, call, _known(fake, job_id)))


def scontrol(fake: FakeSlurm, call: Call) -> Answer:
    if {"show", "--version", "batch_script"} & set(call.arguments):
        return _shown(fake, call)
    verb, target, *settings = call.arguments
    job_id = JobId(int(target.removeprefix("JobId=")))
    found = _known(fake, job_id)
    if _is_touched(fake, job_id) or found is None:
        return Answer("", f"{_INVALID_ID} for job {job_id}\n", 1)
    if call.user not in (found.user, "root", *fake.operators):
        return Answer("", f"Access/permission denied for job {job_id}\n", 1)
    privileged = call.user in ("root", *fake.operators)
    if not privileged and (job_id in fake.held_by_admin or any(word.startswith("Nice=-") for word in settings)):
        return Answer("", f"Access/permission denied for job {job_id}\n", 1)
    if found.state.finished:
        return Answer("", f"Job has already finished for job {job_id}\n", 1)
    if verb in ("hold", "uhold", "release"):
        (fake.simulation.release if verb == "release" else fake.simulation.hold)(job_id)
        by_admin = verb == "hold" and call.user != found.user
        (fake.held_by_admin.add if by_admin else fake.held_by_admin.discard)(job_id)
    for setting in settings:
        name, _, value = setting.partition("=")
        if name == "Nice":
            fake.simulation.set_nice(job_id, int(value))
        elif name == "ReqNodeList":
            fake.simulation.set_node_list(job_id, value)
        elif name == "StartTime":
            fake.simulation.set_begin(job_id, 0 if value == "now" else int(value.removeprefix("uts")))
        elif name == "Comment":
            fake.set_comment(job_id, value)
        else:
            return Answer("", f"Update of this parameter is not supported: {setting}\n", 1)
    return Answer("")


def _is_touched(fake: FakeSlurm, job_id: JobId) -> bool:
    """Whether an act is about a job that only has the number of another; the fake records it."""
    if job_id not in _given_again(fake):
        return False
    fake.touched.append(job_id)  # type: ignore[attr-defined]
    return True


def _known(fake: FakeSlurm, job_id: JobId) -> Job | None:
    """The job, unless the controller has forgotten it or it never was."""
    try:
        job = fake.simulation.job(job_id)
    except UnknownJob:
        return None
    return None if job.state.finished and job.end < fake.simulation.now - fake.min_job_age else job


# sacct


def sacct(fake: FakeSlurm, call: Call) -> Answer:
    if not fake.accounting:
        return Answer("", "Slurm accounting storage is disabled\n", 1)
    if option(call, "--format") == "SubmitLine":  # which it does not keep
        return Answer("\n")
    mark = option(call, "--delimiter")
    fields = [field.partition("%")[0] for field in option(call, "--format").split(",")]
    words = [word for word in option(call, "--jobs").split(",") if word]
    if wrong := [word for word in words if not word.isdecimal()]:
        return Answer("", f"sacct: fatal: Bad job/step specified: {wrong[0]}\n", 1)
    start, end = _instant(fake, option(call, "--starttime")), _instant(fake, option(call, "--endtime"))
    jobs = [job for job in fake.accounted() if not words or str(job.job_id) in words]
    within = [job for job in jobs if job.submit < end and (job.end == ABSENT or job.end >= start)]
    if "--duplicates" not in call.arguments:  # of jobs with one number the last
        within = list({job.job_id: job for job in sorted(within, key=lambda job: job.submit)}.values())
    rows = [_record(fake, call, job) for job in within]
    lines = ["".join(f"{field}{mark}" for field in fields)]
    lines += ["".join(f"{row[field]}{mark}" for field in fields) for row in rows]
    return Answer("".join(f"{line}\n" for line in lines))


def _record(fake: FakeSlurm, call: Call, job: Job) -> dict[str, str]:
    ran = job.start != ABSENT
    code = job.exit_code
    start = job.start if ran or not job.state.finished else job.end
    return {
        "JobIDRaw": str(job.job_id),
        "User": job.user,
        "Partition": job.partition,
        "NNodes": str(job.nodes),
        "TimelimitRaw": str(job.limit // 60),
        "State": f"CANCELLED{fake.canceller}" if job.state is JobState.CANCELLED else job.state.name,
        "Submit": _time(call, job.submit, "Unknown"),
        "Eligible": _time(call, job.submit, "Unknown"),
        "Start": _time(call, start, "Unknown"),
        "End": _time(call, job.end if job.state.finished else ABSENT, "Unknown"),
        "ExitCode": f"0:{code - 128}" if code > 128 else f"{code}:0",
        "NodeList": "cpu-001" if ran else "None assigned",
        "JobName": job.name,
        "Comment": _comment_kept(fake, job),
        "Account": "research",
        "QOS": "normal",
        "Constraints": "",
        "AllocTRES": f"billing={job.nodes},cpu={job.nodes},node={job.nodes}" if ran else "",
        "ReqTRES": f"billing={job.nodes},cpu={job.nodes},mem=1G,node={job.nodes}",
    }


def _comment_kept(fake: FakeSlurm, job: Job) -> str:
    kept = job.state.finished and getattr(fake, "comments_accounted", True)  # slurmctld sends it with the end
    return fake.comments.get(job.job_id, job.tag) if kept else ""


def _instant(fake: FakeSlurm, text: str) -> int:
    if text.startswith("uts"):
        return int(text[3:])
    sign, days = re.fullmatch(r"now([+-])(\d+)days", text).groups()  # type: ignore[union-attr]
    return fake.simulation.now + int(f"{sign}{days}") * 86_400


COMMANDS: dict[str, Callable[[FakeSlurm, Call], Answer]] = {
    "squeue": squeue,
    "sinfo": sinfo,
    "sbatch": sbatch,
    "scancel": scancel,
    "scontrol": scontrol,
    "sacct": sacct,
    **dict.fromkeys(("sshare", "sacctmgr"), told),
    "sdiag": lambda *_: Answer("", "slurm_get_statistics: Access/permission denied\n", 1),
}
