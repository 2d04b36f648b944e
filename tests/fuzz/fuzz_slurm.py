"""Output of Slurm's commands, and people's input in Slurm's formats."""

from __future__ import annotations

from functools import partial

from fuzzing import Target
from recorded import MARK, marked, printed

from mirage.backends import marked_jobs
from mirage.backends.cluster_queries import read_controller_time
from mirage.cli.printing import in_local_time
from mirage.daemon.doctor import finding
from mirage.simulator.configuration.accountdump import parse_associations, parse_qos
from mirage.slurm import (
    accounting,
    batchscript,
    conf,
    duration,
    hostlist,
    job_state,
    node_text,
    option_values,
    queuetext,
    sbatch,
    shares_and_partitions,
    tres,
)
from mirage.slurm.conf import read_version
from mirage.slurm.jobrequest import Sources, Surroundings, read_request
from mirage.slurm.rest.options import read_script
from mirage.slurm.rows import CELL
from mirage.slurm.sbatchoptions import SBATCH, Word, given_by_environment
from mirage.slurm.wrapper import unwrapped, with_arguments, wrap

NOW = 1_750_000_000
SCRIPT = """#!/bin/bash
#SBATCH --job-name=train -N 2 --time=1-00:00:00 --mem=4G
#SBATCH --gres=gpu:a100:2 --signal=B:USR1@120 --begin=now+2hours
#SBATCH --constraint="a&b" --dependency=afterok:12 --nice=10 --cpus-per-task 4 --ntasks-per-node=1
#MIRAGE --max-links 3 --until 2026-12-24T18:00
srun ./train
"""
LINE = "-N2-4 --time 2-0 -p a,b --mem-per-cpu=1G --gpus=a100:2 --begin=16:30 --nice --signal=R:TERM@60 --exclusive"
SLURM_CONF = """ClusterName=mini
SlurmctldHost=head
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
PriorityWeightAge=1000 PriorityDecayHalfLife=7-0
SchedulerParameters=bf_max_job_test=100,bf_window=1440
NodeName=n[1-4] CPUs=8 RealMemory=64000 Sockets=1 CoresPerSocket=8 Gres=gpu:a100:2 Feature=x,y \\
  State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=2-00:00:00 # all
"""


def directives(text: str) -> None:
    batchscript.check_script(text, "job.sh")
    batchscript.foreign_line(text)
    for mark in (batchscript.SBATCH_LINE, batchscript.MIRAGE_LINE):
        batchscript.read_directives(text, mark, "job.sh")


def asked_for(text: str) -> None:
    """What a job says about a chain: in its comment, and in a script that may submit itself."""
    marked_jobs.comment_options(text)
    marked_jobs.is_off(text)
    batchscript.has_directives(text, batchscript.MIRAGE_LINE)
    marked_jobs.resubmission(text, "train.sh")


def request(text: str) -> None:
    """A line of options as a script's, the environment's and the command line's."""
    words = batchscript.read_directives(f"#SBATCH {text}", batchscript.SBATCH_LINE, "job.sh").words
    given, _ = SBATCH.read([Word(word.text, "command line") for word in words])
    around = Surroundings("job", "ada", "/home/ada", NOW, lambda partition: 3_600)
    read_request(Sources(script=given), around, SCRIPT)


def wrapped(text: str) -> None:
    with_arguments(text, ("a", text))
    wrap(text, text)


def environment(text: str) -> None:
    pairs = (line.partition("=") for line in text.split("\n"))
    given = given_by_environment({name: value for name, _, value in pairs})
    around = Surroundings("job", "ada", "/home/ada", NOW, lambda partition: 3_600)
    read_request(Sources(environment=given), around, SCRIPT)


HOSTS = ("n[001-010,20],gpu-[1-2]", "rack[1-2]node[03-05]", "login,n1", "")
LIMITS = ("2-00:00:00", "48:00:00", "30", "1-12", "10:30", "UNLIMITED", "Partition_Limit", "INVALID")

TARGETS = (
    Target("squeue", partial(queuetext.read_queue, mark=MARK, wanted={1, 2}), marked("squeue.mirage.epoch", 12)),
    Target(
        "squeue, only ours",
        lambda text: queuetext.read_queue(text, MARK, columns=False),
        marked("squeue.mirage.epoch", 8),
    ),
    Target("sinfo", partial(node_text.read_partitions, mark=MARK), marked("sinfo.mirage", 20)),
    Target("sacct, fates", partial(accounting.read_runs, mark=MARK), marked("sacct.mirage-fate.epoch", 8, CELL)),
    Target(
        "sacct, past links",
        partial(accounting.read_past_links, mark=MARK, ids={1, 2}),
        marked("sacct.mirage-fate.epoch", 8, CELL),
    ),
    Target(
        "sacct, history",
        partial(accounting.read_history, mark=MARK),
        marked("sacct.mirage-history.epoch", 8, CELL),
    ),
    Target(
        "marked job", asked_for, ("mirage: --links 5", "mirage:off no", f"{SCRIPT}sbatch /a/train.sh; sbatch $0")
    ),
    Target("array of a pending job", queuetext.count_tasks, ("123_[5-9,12%2]", "123_[1-9:2]", "123", "1_[1,...]")),
    Target("reservations", shares_and_partitions.read_reservations, printed("scontrol.reservations.epoch")),
    Target(
        "partitions' nodes", shares_and_partitions.read_partition_nodes, printed("scontrol.partitions-oneline")
    ),
    Target(
        "partition's default limit",
        lambda text: shares_and_partitions.read_default_limit(text, ""),
        printed("scontrol.partitions-oneline"),
    ),
    Target(
        "fair shares",
        shares_and_partitions.read_shares,
        ("Account|User|RawShares|FairShare\nroot||1|0.5\nphysics|ada|1|0.25\n",),
    ),
    Target(
        "default accounts",
        shares_and_partitions.read_default_accounts,
        ("User|Def Acct|Admin\nada|physics|None\nbob|maths|None\n",),
    ),
    Target(
        "associations",
        lambda text: parse_associations(text, "assoc.txt"),
        (
            "Cluster|Account|User|ParentName|Share|Partition|GrpJobs|MaxJobs|GrpTRES|QOS\n"
            "mini|root||||1||||\nmini|physics||root|10||5||cpu=10,gres/gpu=2|\nmini|physics|ada||parent|||3||normal\n",
        ),
        names="assoc.txt",
    ),
    Target(
        "qualities of service",
        lambda text: parse_qos(text, "qos.txt"),
        (
            "Name|Priority|GrpJobs|MaxJobsPU|MaxTRESPU|MaxWall|Flags|UsageFactor\n"
            "normal|0|||cpu=8,node=2|1-00:00:00||1.000000\nlong|10|5|2|||DenyOnLimit|2.0\n",
        ),
        names="qos.txt",
    ),
    Target("scontrol show config", conf.read_settings, printed("scontrol.config")),
    Target("doctor: settings", finding.read_settings, printed("scontrol.config")),
    Target("doctor: partitions", finding.read_partitions, printed("scontrol.partitions-oneline")),
    Target("doctor: tables", finding.read_table, printed("sacctmgr.users")),
    Target("doctor: clock", read_controller_time, printed("sdiag")),
    Target("doctor: version", read_version, printed("scontrol.version")),
    Target("slurm.conf, syntax", lambda text: conf.parse(text, "slurm.conf"), (SLURM_CONF,), names="slurm.conf"),
    Target("batch script", directives, (SCRIPT,)),
    Target(
        "batch script, for slurmrestd",
        lambda text: read_script(text, NOW),
        (SCRIPT.replace(" --dependency=afterok:12", ""),),
    ),
    Target("batch script, wrapped", wrapped, ("#!/bin/sh a x\ntrue\n",)),
    Target("batch script that Mirage wrapped", unwrapped, (with_arguments("#!/bin/sh\ntrue\n", ("a", "b c")),)),
    Target("times in sentences", in_local_time, ("next try at 2026-01-31T23:30:00Z; 3 attempts",)),
    Target(
        "options of sbatch",
        request,
        (LINE, "--mem=1T --ntasks=8 -c2 -n4", "--begin=noon --mail-user=a@b -o x.out", "--begin=tomorrow -t 30"),
    ),
    Target(
        "options of sbatch in the environment",
        environment,
        ("SBATCH_TIMELIMIT=2-0\nSBATCH_PARTITION=p\nSBATCH_GPUS=2\nSBATCH_SIGNAL=USR1",),
    ),
    Target("answer of sbatch", sbatch.read_job_id, ("123\n", "123;mini\n")),
    Target(
        "start that sbatch plans",
        sbatch.read_planned_start,
        ("sbatch: Job 123 to start at 1795725253 a using 4 processors on nodes n1 in p\n",),
    ),
    Target(
        "begin time",
        lambda text: option_values.parse_begin(text, NOW),
        ("now+2hours", "2026-12-24T18:00", "16:30", "tomorrow", "noon", "uts1700000000"),
    ),
    Target("time", duration.parse, LIMITS[:6]),
    Target("time limit", duration.parse_limit, LIMITS[:7]),
    Target("duration", duration.parse_human, ("48h", "1d12h", "1.5 h", "90s", "2-00:00:00")),
    Target("host list", hostlist.expand, HOSTS),
    Target("host names", lambda text: hostlist.fold(text.split(" ")), ("n1 n2 n3 gpu-07 gpu-08",)),
    Target("job id", job_state.expand_job_ids, ("123", "123_4", "123+1", "123_[5-9,12%2]", "123_[1,...]")),
    Target("step", job_state.is_step, ("123.batch", "123_4.0")),
    Target("exit code", job_state.parse_exit_code, ("0:15", "1:0", "3", "")),
    Target("wait status", job_state.exit_code_of_status, ("768", "15", "0")),
    Target("job state", job_state.parse_state, ("COMPLETED", "CANCELLED by 1000", "OUT_OF_ME+", "CA")),
    Target("TRES", tres.parse_tres, ("cpu=4,mem=10G,node=1,billing=4,gres/gpu:a100=4", "")),
    Target("GRES", tres.parse_gres, ("gpu:a100:4", "gres:gpu:2", "npu:3(S:0-1),gpu", "gres/gpu=2")),
    Target("memory", tres.memory_mb, ("10G", "512K", "1.50T", "4000")),
)
