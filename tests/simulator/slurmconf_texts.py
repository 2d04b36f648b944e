"""Texts of slurm.conf, and dumps of sacctmgr to stand next to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.simulator.configuration.slurmconf import read_slurm_conf

if TYPE_CHECKING:
    from mirage.simulator.cluster import ClusterConfig

MINIMAL = "ClusterName=mini\nSelectType=select/cons_tres\nNodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n"

ASSOC = """\
Cluster|Account|User|Partition|Share|Priority|GrpJobs|GrpTRES|GrpSubmit|MaxJobs|MaxSubmit|MaxWall|Par Name|QOS
mini|root|||1|||||||||normal
mini|root|root||1|||||||||normal
mini|physics|||10||20|cpu=64,mem=1T,gres/gpu:a100=8||||1-00:00:00|root|normal
mini|plasma|||parent|||||||12:00:00|physics|normal
mini|plasma|alice||5|3||||4|9|||normal
mini|plasma|alice|debug|5||||||||| normal
other|chemistry|||7||||||||root|normal
"""

QOS = """\
Name|Priority|GraceTime|Preempt|Flags|UsageFactor|GrpTRES|GrpJobs|MaxTRES|MaxWall|MaxTRESPU|MaxJobsPU|MaxSubmitPU|MaxJobsPA
normal|0|00:00:00||| 1.000000||||||||
long|50|00:00:00||DenyOnLimit|2.000000|node=10,billing=5|30|node=2|7-00:00:00|gres/gpu=4|2|6|8
"""

UNMODELLED = [
    "PreemptType=preempt/qos",
    "Licenses=matlab:10",
    "TopologyPlugin=topology/tree",
    "SuspendTime=600",
    "JobSubmitPlugins=lua",
    "CompleteWait=32",
    "SchedulerParameters=bf_one_resv_per_job",
    "SchedulerParameters=brand_new_thing=5",
    "SchedulerParameters=defer",
    "PriorityFlags=MAX_TRES",
    "PartitionName=x Nodes=n1 AllowAccounts=physics",
    "PartitionName=x Nodes=n1 OverSubscribe=FORCE:2",
    "PartitionName=x Nodes=n1 PreemptMode=requeue",
    "PartitionName=x Nodes=n1 State=DRAIN",
    "NodeName=cloud1 State=CLOUD",
    "NodeName=t1 ThreadsPerCore=2",
    "NodeName=t1 Gres=tape:no_consume:5",
    "PartitionName=x Nodes=n1 TRESBillingWeights=CPU=1,license/matlab=5",
]


def config_of(text: str, **beside: str) -> ClusterConfig:
    return read_slurm_conf(text, "slurm.conf", beside).config


def with_line(line: str) -> ClusterConfig:
    return config_of(MINIMAL + line + "\n")
