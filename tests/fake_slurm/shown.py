"""Output of ``scontrol show job`` and ``scontrol write batch_script``, in the words of Slurm 22.05."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from fake_slurm.options import read_submission

from mirage.domain.job import JobState
from mirage.slurm import duration

if TYPE_CHECKING:
    from pathlib import Path

    from fake_slurm.fake import Call, FakeSlurm

    from mirage.domain.job import Job

_SHOWN = """\
JobId={job.job_id} JobName={job.name}
   UserId={job.user}({uid}) GroupId={job.user}({uid}) MCS_label=N/A
   Priority=4294901757 Nice={job.nice} Account={account} QOS={qos}
   JobState={job.state.name} Reason=None Dependency={dependency}
   Requeue={requeue} Restarts=0 BatchFlag={batch} Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit={limit} TimeMin=N/A
   SubmitTime=2026-09-21T12:00:00 EligibleTime=2026-09-21T12:00:00
   Partition={job.partition} AllocNode:Sid=login:1
   ReqNodeList={asked} ExcNodeList=(null)
   NodeList={nodes}
   NumNodes={job.nodes} NumCPUs={job.nodes} NumTasks={job.nodes} CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu={job.nodes},node={job.nodes},billing={job.nodes}
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe={share} Contiguous=0 Licenses=(null) Network=(null)
   Command={command}
   WorkDir={directory}
{comment}   StdErr={directory}/slurm-{job.job_id}.out
   StdIn=/dev/null
   StdOut={directory}/slurm-{job.job_id}.out
   Power=
"""


def shown_to_owner(fake: FakeSlurm, call: Call, job: Job | None) -> tuple[str, str, int]:
    """Output, errors and exit status; ``job``: the one that is asked about, where it is known."""
    submitted = fake.batches.get(job.job_id) if job is not None else None
    if job is None or submitted is None:
        return "", "slurm_load_jobs error: Invalid job id specified\n", 1
    if call.arguments[0] == "show":
        return _job(job, submitted, fake.comments.get(job.job_id, job.tag), fake.directory), "", 0
    if call.user != job.user:
        return "", "job script retrieval failed: Invalid user id\n", 0
    batch = read_submission(submitted.arguments, submitted.stdin, submitted.user).request.batch
    return batch.text if batch is not None else "", "", 0


def _job(job: Job, call: Call, comment: str, directory: Path) -> str:
    request = read_submission(call.arguments, call.stdin, call.user).request
    assert request.batch is not None
    try:
        uid = pwd.getpwnam(job.user).pw_uid
    except KeyError:
        uid = 4_000
    waits = job.state is JobState.PENDING
    return _SHOWN.format(
        job=job,
        uid=uid,
        account=request.account or "research",
        qos=request.qos or "normal",
        dependency=f"afterany:{request.dependencies[0].job_id}(unfulfilled)" if request.dependencies else "(null)",
        requeue=int(request.requeue is not False),
        batch=1,
        limit=duration.spell(job.limit),
        asked=request.node_list or "(null)",
        nodes="" if waits else job.node_list,
        share="NO" if request.exclusive else "OK",
        command=" ".join(["/home/train.sh", *request.batch.arguments]),
        directory=request.batch.directory or directory,
        comment=f"   Comment={comment} \n" if comment else "",
    )
