"""Queries with Slurm's commands, recorded with Slurm's time format and with epoch seconds."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onehost.daemons import environment
from onehost.people import person
from onehost.programs import find

if TYPE_CHECKING:
    from onehost.layout import Layout
    from onehost.recorder import Recorder

CELL, MARK = "\x1f", "\x1e0123456789ab"
"""Ends of cells and of rows. Mirage draws the mark's digits for each query and passes it in the environment."""
EPOCH = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "SLURM_BITSTR_LEN": "0"}
"""Mirage's settings: times as epoch seconds, lists of array tasks not cut short."""
PLAIN, BOTH, ONLY_EPOCH = ("",), ("", ".epoch"), (".epoch",)
# Mirage's queries are repeated here, because this must run without the packages that Mirage depends on. A test of
# the recordings (tests/slurm/test_recorded_text.py) compares every argument with Mirage's.
MIRAGE_QUEUE = (
    "JobID JobArrayID State UserName Account SubmitTime EligibleTime StartTime EndTime TimeLimit NumNodes"
    " Partition QOS PriorityLong Nice exit_code ReqNodes NodeList tres-alloc Reason Name Comment"
)
QUEUE = (
    "JobID JobArrayID ArrayJobID ArrayTaskID HetJobID HetJobOffset State StateCompact Reason ReasonList UserName"
    " UserID Account Partition QOS SubmitTime EligibleTime AccrueTime StartTime EndTime PendingTime TimeLimit"
    " TimeLeft TimeUsed NumNodes NumCPUs NumTasks MinCpus MinMemory NodeList SchedNodes ReqNodes Feature"
    " Gres tres-alloc tres-per-job tres-per-node tres-per-task Dependency Reservation Priority PriorityLong Nice"
    " RestartCnt Requeue exit_code DeadLine WorkDir Command admin_comment Name Comment"
)
HISTORY = (
    "JobID,JobIDRaw,JobName,User,UID,Group,Account,Partition,QOS,State,Submit,Eligible,Start,End,ElapsedRaw,Timelimit,"
    "TimelimitRaw,Suspended,NNodes,NCPUS,ReqNodes,ReqCPUS,ReqMem,ReqTRES,AllocTRES,NodeList,Priority,ExitCode,"
    "DerivedExitCode,Reservation,Constraints,Reason,Flags,SubmitLine,Comment,AdminComment"
)
TRACE = (
    "JobID,User,Account,Partition,QOS,JobName,Submit,Eligible,Start,End,Timelimit,State,ExitCode,ReqNodes,NNodes,ReqCPUS,"
    "NCPUS,ReqMem,ReqTRES,AllocTRES,Priority,NodeList,Flags,Constraints,Reservation,Suspended,Comment"
)
FATE = (
    "JobIDRaw,User,Partition,NNodes,TimelimitRaw,State,Start%40,End%40,ExitCode,NodeList,JobName,Comment,Submit%40"
)
PAST = (
    "JobIDRaw,Eligible%40,Start%40,End%40,State,TimelimitRaw,NNodes,AllocTRES,ReqTRES,NodeList,User,Account,Partition,"
    "QOS,Constraints,JobName,Submit%40"
)
MIRAGE_HISTORY = f"sacct --allocations --parsable --noconvert --delimiter={CELL} --format="
MARKED_TIMES = {"SLURM_TIME_FORMAT": f"%s{MARK}"}
ALWAYS = "-S now-90days -E now+90days"


@dataclass(frozen=True, slots=True)
class Question:
    """One command, recorded as ``name``; with ``EPOCH`` in its environment as ``name.epoch``."""

    name: str
    argv: tuple[str, ...]
    forms: tuple[str, ...] = PLAIN
    user: str = "root"
    environment: dict[str, str] = field(default_factory=dict)
    """Variables added to the environment of the form."""


def ask(
    name: str,
    command: str,
    *more: str,
    forms: tuple[str, ...] = PLAIN,
    user: str = "root",
    environment: dict[str, str] | None = None,
) -> Question:
    """A query from a command line; ``more`` is not split."""
    return Question(name, (*shlex.split(command), *more), forms, user, environment or {})


def columns(fields: str) -> str:
    """``squeue -O``: cells of any width, ended by ``CELL``, rows ended by ``MARK``."""
    *first, last = fields.split()
    return ",".join([f"{name}:{CELL}" for name in first] + [f"{last}:{MARK}"])


def parsable(fields: str) -> tuple[str, ...]:
    """``sacct``: the same ends."""
    return (f"--delimiter={CELL}", f"--format={fields}")


LETTERS = "|".join(f"%{letter}" for letter in "AFKtTruaPqVSelLMDCmNYRbEvpQyfojk")
QUEUE_QUESTIONS = (
    ask("squeue", "squeue -a -t all", forms=BOTH),
    ask("squeue.default-states", "squeue -h -a"),
    ask("squeue.letters", "squeue -h -a -t all -o", LETTERS, forms=BOTH),
    ask("squeue.fields", "squeue -a -t all --noconvert -O", columns(QUEUE), forms=ONLY_EPOCH),
    ask(
        "squeue.mirage",
        "squeue --all --states=all --noconvert",
        forms=ONLY_EPOCH,
        environment={"SQUEUE_FORMAT2": columns(MIRAGE_QUEUE)},
    ),
    ask("squeue.start", "squeue -a --start -o", "%i|%S|%Y|%r", forms=ONLY_EPOCH),
    ask("squeue.array", "squeue -a -t all -r -o", "%i|%F|%K|%T", forms=ONLY_EPOCH),
)
NODE_QUESTIONS = (
    ask("sinfo", "sinfo -a"),
    ask("sinfo.nodes", "sinfo -a -N -l"),
    ask("sinfo.letters", "sinfo -h -a -N -o", "%N|%P|%R|%T|%t|%D|%c|%m|%G|%f|%O|%e|%C|%a|%l|%w|%E"),
    ask(
        "sinfo.mirage",
        "sinfo --all --noconvert",
        environment={"SINFO_FORMAT": f"%R{CELL}%T{CELL}%D{MARK}"},
    ),
    ask(
        "sinfo.fields",
        "sinfo -h -a -N -O",
        columns(
            "NodeList PartitionName StateLong StateCompact CPUsState Gres GresUsed Memory FreeMem Features Reason"
        ),
    ),
    ask("sinfo.reasons", "sinfo -R"),
)
SCONTROL_QUESTIONS = (
    ask("scontrol.jobs", "scontrol show job"),
    ask("scontrol.jobs-oneline", "scontrol -o show job", forms=ONLY_EPOCH),
    ask("scontrol.jobs-detailed", "scontrol -d -o show job", forms=ONLY_EPOCH),
    ask("scontrol.nodes", "scontrol show node"),
    ask("scontrol.nodes-oneline", "scontrol -o show node", forms=ONLY_EPOCH),
    ask("scontrol.partitions", "scontrol show partition"),
    ask("scontrol.partitions-oneline", "scontrol -o show partition"),
    ask("scontrol.reservations", "scontrol -o show reservation", forms=ONLY_EPOCH),
    ask("scontrol.steps", "scontrol -o show step"),
    ask("scontrol.config", "scontrol show config"),
    ask("scontrol.ping", "scontrol ping"),
    ask("scontrol.version", "scontrol --version"),
)
ACCOUNTING_QUESTIONS = (
    ask("sacct", "sacct -a", *shlex.split(ALWAYS)),
    ask("sacct.trace", f"sacct -a -X -P --noconvert {ALWAYS} -o", TRACE, forms=BOTH),
    ask("sacct.history", f"sacct -a -X -p --noconvert -D {ALWAYS}", *parsable(HISTORY), forms=ONLY_EPOCH),
    ask(
        "sacct.steps",
        f"sacct -a -P --noconvert {ALWAYS} -o JobID,JobIDRaw,JobName,State,Start,End,ExitCode,AllocTRES",
    ),
    ask(
        "sacct.mirage-fate",
        f"{MIRAGE_HISTORY}{FATE}",
        "--jobs={every job}",
        "--starttime=now-90days",
        "--endtime=now+90days",
        forms=ONLY_EPOCH,
        environment=MARKED_TIMES,
    ),
    ask(
        "sacct.mirage-recent",
        f"{MIRAGE_HISTORY}{FATE} --allusers --starttime=now-2days --endtime=now+90days",
        forms=ONLY_EPOCH,
        environment=MARKED_TIMES,
    ),
    ask(
        "sacct.mirage-history",
        f"{MIRAGE_HISTORY}{PAST} --allusers --duplicates --starttime=uts1000000000 --endtime=uts4000000000",
        forms=ONLY_EPOCH,
        environment=MARKED_TIMES,
    ),
    ask("sacct.formats", "sacct --helpformat"),
    ask("sacctmgr.associations", "sacctmgr -P show assoc"),
    ask("sacctmgr.qos", "sacctmgr -P show qos"),
    ask("sacctmgr.users", "sacctmgr -P show user withassoc"),
    ask("sacctmgr.tres", "sacctmgr -P show tres"),
)
PRIORITY_QUESTIONS = (
    ask("sdiag", "sdiag"),
    ask("sprio", "sprio -l"),
    ask("sprio.normalised", "sprio -h -o", "%i|%r|%u|%Y|%a|%f|%A|%F|%j|%p|%N"),
    ask("sshare", "sshare -a -l -P"),
)
REFUSALS = (
    ask("refused.partition", "sbatch -p nowhere --wrap true", user="alice"),
    ask("refused.account", "sbatch -A nobody --wrap true", user="alice"),
    ask("refused.limit", "sbatch -p cpu -t 3-0 --wrap true", user="alice"),
    ask("refused.nodes", "sbatch -p debug -N3 --wrap true", user="alice"),
    ask("refused.gres", "sbatch -p a100 --gres=gpu:h100:1 --wrap true", user="alice"),
    ask("refused.qos", "sbatch -p cpu -q urgent --wrap true", user="alice"),
    ask("refused.dependency", "sbatch -p cpu --dependency=afterok:999999 --wrap true", user="alice"),
    ask("refused.reservation", "sbatch -p cpu --reservation=nowhere --wrap true", user="alice"),
    ask("refused.submit-limit", "sbatch -p cpu -A limited --array=0-9 --wrap true", user="alice"),
    ask("refused.partition-down", "sbatch -p closed --test-only --wrap true", user="alice"),
    ask("refused.user", "sbatch -p cpu --wrap true", user="nobody"),
    ask("test-only", "sbatch -p v100 -N2 --exclusive -t 60 --test-only --wrap true", user="alice", forms=BOTH),
    ask("unknown-job.squeue", "squeue -h -j 999999"),
    ask("unknown-job.scontrol", "scontrol show job 999999"),
    ask("unknown-job.scancel", "scancel 999999"),
    ask("unknown-job.hold", "scontrol hold 999999"),
    ask("ended-job.scancel", "scancel {completed}", user="alice"),
    ask("ended-job.update", "scontrol update JobId={completed} Nice=5", user="alice"),
    ask("ended-job.hold", "scontrol hold {completed}", user="alice"),
    ask("foreign-job.scancel", "scancel {priority}", user="alice"),
    ask("foreign-job.update", "scontrol update JobId={priority} Nice=5", user="alice"),
    ask("foreign-job.release", "scontrol release {held-by-admin}", user="carol"),
    ask("own-job.nice-below-zero", "scontrol update JobId={priority} Nice=-5", user="bob"),
    ask("own-job.release-admins-hold", "scontrol release {held-by-admin}", user="bob"),
)
SUBMISSIONS = (
    ask("submitted", "sbatch -H -p cpu -o /dev/null --wrap true", user="alice"),
    ask("submitted.parsable", "sbatch --parsable -H -p cpu -o /dev/null --wrap true", user="alice"),
    ask("submitted.array", "sbatch --parsable -H -p cpu -o /dev/null --array=0-3 --wrap true", user="alice"),
)
QUESTIONS = QUEUE_QUESTIONS + NODE_QUESTIONS + SCONTROL_QUESTIONS + ACCOUNTING_QUESTIONS + PRIORITY_QUESTIONS
LATER = REFUSALS + SUBMISSIONS
"""Queries that run last, because they may change the state."""


def record(questions: tuple[Question, ...], jobs: dict[str, str], layout: Layout, recorder: Recorder) -> None:
    """Run a query and keep its output, in each form."""
    for question in questions:
        for form in question.forms:
            record_one(question, form, jobs, layout, recorder)


def record_one(
    question: Question,
    form: str,
    jobs: dict[str, str],
    layout: Layout,
    recorder: Recorder,
) -> None:
    """Standard output is the file; exit status and standard error are in the index."""
    extra = (EPOCH if form else {}) | question.environment
    argv = [with_jobs(argument, jobs) for argument in question.argv]
    user = person(question.user)
    program = find(argv[0])
    done = subprocess.run(
        [str(program), *argv[1:]],
        env=environment(layout) | {"USER": user.name, "HOME": str(user.home)} | extra,
        capture_output=True,
        check=False,
        cwd="/tmp",  # noqa: S108 - some users have no home
        **user.identity(),
    )
    about = {
        "argv": argv,
        "environment": extra,
        "user": question.user,
        "exit": done.returncode,
        "stderr": done.stderr.decode(),
    }
    recorder.keep(f"{question.name}{form}.txt", done.stdout, about)


def with_jobs(argument: str, jobs: dict[str, str]) -> str:
    """Ids in place of the names of jobs, such as ``{completed}``; ``{every job}`` is all of them, in order."""
    argument = argument.replace("{every job}", ",".join(sorted(jobs.values(), key=int)))
    for name, job in jobs.items():
        argument = argument.replace(f"{{{name}}}", job)
    return argument
