"""A site's own slurm.conf: units and defaults of its manual, what is not modelled, what stands next to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulator.slurmconf_texts import ASSOC, MINIMAL, QOS, UNMODELLED, config_of, with_line

from mirage.domain.errors import ConfigError
from mirage.domain.job import UNLIMITED
from mirage.simulator.cluster import FairShare, SchedulerParameters, TresLimit
from mirage.simulator.configuration.slurmconf import inspect_slurm_conf, read_slurm_conf

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_left_out_has_the_manuals_defaults():
    config = config_of(MINIMAL)
    (partition,) = config.partitions
    assert config.scheduler == SchedulerParameters(max_array_tasks=1001)
    assert (partition.max_time, partition.default_time, partition.max_nodes, partition.min_nodes) == (
        UNLIMITED,
        0,
        0,
        0,
    )
    assert (partition.priority_tier, partition.priority_job_factor, partition.exclusive) == (1, 1, False)
    assert (partition.default, partition.up, partition.over_time_limit) == (True, True, -1)
    assert (config.priority.max_age, config.priority.decay_half_life, config.priority.calc_period) == (
        7 * 86_400,
        7 * 86_400,
        300,
    )
    assert (config.name, config.node_count, config.cpu_count) == ("mini", 4, 32)


def test_scheduler_parameters_have_slurms_units():
    line = (
        "SchedulerParameters=bf_window=4320,bf_resolution=600,bf_interval=60,bf_min_age_reserve=120,"
        "bf_window_linear=60,bf_continue,default_queue_depth=1000,sched_interval=20,batch_sched_delay=1,"
        "bf_max_job_test=1000,bf_max_job_user=10,bf_max_job_part=20,bf_max_job_start=5,bf_max_job_array_resv=30,"
        "bf_min_prio_reserve=7,max_array_tasks=500"
    )
    assert with_line(line).scheduler == SchedulerParameters(
        bf_window=72 * 3600,  # minutes in Slurm
        bf_resolution=600,
        bf_interval=60,
        bf_min_age_reserve=120,
        bf_window_linear=60,
        bf_continue=True,
        default_queue_depth=1000,
        sched_interval=20,
        batch_sched_delay=1,
        bf_max_job_test=1000,
        bf_max_job_user=10,
        bf_max_job_part=20,
        bf_max_job_start=5,
        bf_max_job_array_resv=30,
        bf_min_prio_reserve=7,
        max_array_tasks=500,
    )


@pytest.mark.parametrize("line", ["SchedulerType=sched/builtin", "SchedulerParameters=bf_interval=-1"])
def test_backfill_can_be_off(line: str):
    assert not with_line(line).scheduler.backfill


def test_priority():
    config = with_line(
        "PriorityType=priority/multifactor\nPriorityWeightAge=1\nPriorityWeightFairshare=2\n"
        "PriorityWeightJobSize=3\nPriorityWeightPartition=4\nPriorityWeightQOS=5\nPriorityWeightAssoc=6\n"
        "PriorityWeightTRES=CPU=1000,Mem=2000,GRES/gpu=3000\nPriorityMaxAge=14-0\nPriorityDecayHalfLife=2-12\n"
        "PriorityCalcPeriod=2\nPriorityFavorSmall=YES\nFairShareDampeningFactor=5\n"
        "PriorityFlags=ACCRUE_ALWAYS,SMALL_RELATIVE_TO_TIME,NO_FAIR_TREE"
    )
    p = config.priority
    assert (p.age, p.fair_share, p.job_size, p.partition, p.qos, p.association) == (1, 2, 3, 4, 5, 6)
    assert p.tres == (("cpu", 1000.0), ("mem", 2000.0), ("gres/gpu", 3000.0))
    assert (p.max_age, p.decay_half_life, p.calc_period) == (14 * 86_400, 60 * 3600, 120)
    assert (p.favor_small, p.small_relative_to_time, p.accrue_always, p.dampening) == (True, True, True, 5)
    assert p.fair_share_algorithm is FairShare.CLASSIC


def test_basic_priority_has_no_weights():
    config = with_line("PriorityType=priority/basic\nPriorityWeightAge=1000")
    assert config.priority.age == 0


@pytest.mark.parametrize(
    ("node", "cpus"),
    [
        ("CPUs=12", 12),
        ("Procs=6", 6),
        ("Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=2", 128),
        ("Sockets=2 CoresPerSocket=4", 8),
        ("CPUs=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=2", 64),
        ("CPUs=16 CoreSpecCount=2 ThreadsPerCore=2", 12),
        ("CPUs=16 CpuSpecList=0-1,8", 13),
        ("", 1),
    ],
)
def test_cpus(node: str, cpus: int):
    assert config_of(f"NodeName=n1 {node}\nPartitionName=p Nodes=n1\n").nodes[0].cpus == cpus


@pytest.mark.parametrize(
    ("select", "memory"),
    [
        ("SelectType=select/cons_tres", 950),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_Core", 0),
        ("SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory", 950),
        ("SelectType=select/linear", 0),
        ("SelectType=select/linear\nSelectTypeParameters=CR_Memory", 950),
    ],
)
def test_memory_counts_only_where_it_is_consumable(select: str, memory: int):
    text = f"{select}\nNodeName=n1 RealMemory=1000 MemSpecLimit=50\nPartitionName=p Nodes=n1\n"
    assert config_of(text).nodes[0].memory_mb == memory


def test_whole_nodes():
    shared = "PartitionName=x Nodes=n1 OverSubscribe=EXCLUSIVE\n"
    assert [p.exclusive for p in with_line(shared).partitions] == [False, True]
    newer = "PartitionName=x Nodes=n1 Exclusive=NODE\nPartitionName=y Nodes=n1 Exclusive=NO\n"
    assert [p.exclusive for p in with_line(newer).partitions] == [False, True, False]
    linear = MINIMAL.replace("cons_tres", "linear")
    assert [p.exclusive for p in config_of(linear).partitions] == [True]


def test_default_lines_add_up_and_hold_for_what_follows():
    text = (
        "NodeName=DEFAULT CPUs=4\nNodeName=a1\nNodeName=DEFAULT RealMemory=100 Feature=x,y\nNodeName=a2\n"
        "NodeName=a3 CPUs=2\nPartitionName=DEFAULT MaxTime=60 State=DOWN\nPartitionName=p Nodes=a1\n"
        "PartitionName=q Nodes=a2,a3 MaxTime=UNLIMITED State=UP\n"
    )
    config = config_of(text)
    assert [(g.names, g.cpus, g.memory_mb, g.features) for g in config.nodes] == [
        (("a1",), 4, 1, ()),
        (("a2",), 4, 100, ("x", "y")),
        (("a3",), 2, 100, ("x", "y")),
    ]
    assert [(p.max_time, p.up) for p in config.partitions] == [(3600, False), (UNLIMITED, True)]


def test_partitions():
    config = config_of(
        "NodeName=a[1-2] Features=fast\nNodeName=b[1-2]\nNodeSet=quick Feature=fast\nNodeSet=odd Nodes=a1,b1\n"
        "PartitionName=one Nodes=quick,b2 MaxTime=90:30 DefaultTime=1:00:00 PriorityTier=5 PriorityJobFactor=9\n"
        "PartitionName=two Nodes=odd Default=YES MaxNodes=1 MinNodes=1 OverTimeLimit=10 "
        "TRESBillingWeights=CPU=1.0,Mem=0.25G,GRES/gpu=2.0\nPartitionName=three Nodes=b[2,1] MaxNodes=UNLIMITED\n"
    )
    one, two, three = config.partitions
    assert [p.nodes for p in config.partitions] == [("a1", "a2", "b2"), ("a1", "b1"), ("b1", "b2")]
    assert (one.max_time, one.default_time) == (91 * 60, 3600)  # seconds are rounded up to minutes
    assert (one.priority_tier, one.priority_job_factor, one.default) == (5, 9, False)
    assert (two.default, two.max_nodes, two.min_nodes, two.over_time_limit) == (True, 1, 1, 600)
    assert two.billing_weights == (("cpu", 1.0), ("mem", 0.25 / 1024), ("gres/gpu", 2.0))
    assert three.max_nodes == 0


def test_nodes_that_are_down_or_not_there_yet():
    text = (
        "NodeName=n[1-4]\nNodeName=old State=DRAIN\nNodeName=new State=FUTURE\nPartitionName=p Nodes=n[1-4]\n"
        'DownNodes=n[2-3] State=DOWN Reason="no power"\n'
    )
    config = config_of(text)
    assert [(g.names, g.down) for g in config.nodes if g.names] == [
        (("n1",), False),
        (("n2", "n3"), True),
        (("n4",), False),
        (("old",), True),
    ]
    assert config.node_count == 5


def test_gres_types_come_from_gres_conf():
    text = (
        "GresTypes=gpu,npu\nNodeName=a[1-2] Gres=gpu:4(S:0-1),npu:2\n"
        "NodeName=b1 Gres=gpu:h100:8,tape:no_consume:5\n"
        "PartitionName=p Nodes=ALL\n"
    )
    gres = "AutoDetect=off\nNodeName=a1 Name=gpu Type=v100 Count=4\nName=npu Type=ascend Count=2\n"
    config = config_of(text, **{"gres.conf": gres})
    assert [(g.names, g.gres) for g in config.nodes] == [
        (("a1",), (("gpu:v100", 4), ("npu:ascend", 2))),
        (("a2",), (("gpu", 4), ("npu:ascend", 2))),
        (("b1",), (("gpu:h100", 8),)),
    ]


@pytest.mark.parametrize(
    ("enforce", "associations", "limits"),
    [("", False, False), ("associations", True, False), ("limits", True, True), ("all", True, True)],
)
def test_enforcement(enforce: str, associations: bool, limits: bool):
    dump = "Account|User|Share\na||1\na|alice|1\n"
    config = config_of(f"{MINIMAL}AccountingStorageEnforce={enforce}\n", **{"assoc.txt": dump})
    assert (config.enforce_associations, config.enforce_limits) == (associations, limits)


@pytest.mark.parametrize(
    ("told", "rules"),
    [
        ("slurm 22.05.8", "22.05"),
        ("slurm-wlm 24.11.5\n", "24.11"),
        ("26.05.5", "26.05"),
        ("slurm 24.05.0-1", "23.11"),
        ("25.11.2", "25.05"),
        ("slurm 27.11.0", "26.05"),
        ("slurm 20.11.9", "22.05"),
        ("a branch of one's own", "22.05"),
    ],
)
def test_the_rules_are_those_of_the_release_beside_the_file(told: str, rules: str):
    assert config_of(MINIMAL, **{"version.txt": told}).slurm == rules


def test_accounts_and_qos_beside_the_file():
    text = MINIMAL.replace("Nodes=ALL", "Nodes=ALL QOS=long")
    report = read_slurm_conf(text, "slurm.conf", {"assoc.txt": ASSOC, "qos.txt": QOS})
    rows = {(a.account, a.user): a for a in report.config.associations}
    assert set(rows) == {("root", "root"), ("physics", ""), ("plasma", ""), ("plasma", "alice")}
    physics, plasma, alice = rows["physics", ""], rows["plasma", ""], rows["plasma", "alice"]
    assert (physics.shares, physics.parent, physics.grp_jobs, physics.max_wall) == (10, "", 20, 86_400)
    assert physics.grp_tres == TresLimit((("cpu", 64), ("mem", 1024 * 1024), ("gres/gpu:a100", 8)))
    assert (plasma.parent, plasma.shares) == ("physics", 1)
    assert (alice.shares, alice.max_jobs, alice.max_submit, alice.priority, alice.grp_jobs) == (5, 4, 9, 3, -1)
    normal, long = report.config.qos
    assert (normal.priority, normal.max_jobs_per_user, normal.max_wall) == (0, -1, -1)
    assert (long.priority, long.grp_jobs, long.max_wall, long.max_jobs_per_user) == (50, 30, 7 * 86_400, 2)
    assert (long.max_submit_per_user, long.max_jobs_per_account) == (6, 8)
    assert (long.grp_tres.limits, long.max_tres_per_job.limits) == ((("node", 10), ("billing", 5)), (("node", 2),))
    assert long.max_tres_per_user == TresLimit((("gres/gpu", 4),))
    assert report.config.partitions[0].qos == "long"
    said = "\n".join(report.unmodelled)
    assert "column usagefactor (1 rows)" in said
    assert "column flags (1 rows)" in said
    assert "column partition (1 rows)" in said
    assert "Share=parent" in said
    assert "limits on billing: not modelled" in said


def test_a_folder_with_includes(tmp_path: Path):
    (tmp_path / "slurm.conf").write_text("ClusterName=Site\nGresTypes=gpu\ninclude %c_nodes.conf\n")
    (tmp_path / "site_nodes.conf").write_text("NodeName=n1 Gres=gpu:2\nPartitionName=p Nodes=n9\n")
    (tmp_path / "gres.conf").write_text("Name=gpu Type=a100 Count=2\n")
    with pytest.raises(ConfigError) as caught:
        inspect_slurm_conf(tmp_path / "slurm.conf")
    assert caught.value.where == f"{tmp_path}/site_nodes.conf:2: PartitionName=p: nodes"
    (tmp_path / "site_nodes.conf").write_text("NodeName=n1 Gres=gpu:2\nPartitionName=p Nodes=n1\n")
    assert inspect_slurm_conf(tmp_path / "slurm.conf").config.nodes[0].gres == (("gpu:a100", 2),)
    (tmp_path / "site_nodes.conf").unlink()
    with pytest.raises(ConfigError, match=r"slurm\.conf:3: .*cannot be read"):
        inspect_slurm_conf(tmp_path / "slurm.conf")


@pytest.mark.shared
def test_the_testbeds_own_slurm_conf(shared: Path, tmp_path: Path):
    recipe = shared / "slurm-recipe"
    if not recipe.is_dir():
        pytest.skip(f"testbed recipe not found: {recipe}")
    for name in ("slurm.conf", "gres.conf"):
        text = (recipe / name).read_text().replace("@TB@", str(tmp_path)).replace("@HOST@", "host")
        (tmp_path / name).write_text(text.replace("@CTLD_PORT@", "26000").replace("@DBD_PORT@", "26001"))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nodes.conf").write_text(
        "NodeName=a100-[001-004] NodeHostname=host NodeAddr=127.0.0.1 Port=[26108-26111] CPUs=64 Boards=1 "
        "SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000 Gres=gpu:a100:4 Features=a100\n"
        "NodeName=npu-[001-002] CPUs=64 Gres=npu:8\n"
        "PartitionName=a100 Nodes=a100-[001-004] MaxTime=2-00:00:00 DefaultTime=01:00:00 PriorityTier=1 "
        "TRESBillingWeights=GRES/gpu=3.0 State=UP Default=YES\n"
        "PartitionName=debug Nodes=a100-[001-004] MaxTime=30:00 MaxNodes=2 PriorityTier=2 State=UP\n"
        "PartitionName=npu Nodes=npu-[001-002] MaxTime=1-00:00:00 State=UP\n"
    )
    report = inspect_slurm_conf(tmp_path / "slurm.conf")
    config = report.config
    assert (config.name, config.node_count) == ("testbed", 6)
    assert [(g.cpus, g.memory_mb, g.gres) for g in config.nodes] == [
        (64, 0, (("gpu:a100", 4),)),
        (64, 0, (("npu:ascend", 8),)),
    ]
    assert [(p.name, p.max_time, p.priority_tier, p.max_nodes) for p in config.partitions] == [
        ("a100", 172_800, 1, 0),
        ("debug", 1800, 2, 2),
        ("npu", 86_400, 1, 0),
    ]
    s = config.scheduler
    assert (s.bf_interval, s.bf_window, s.bf_resolution, s.bf_continue) == (2, 72 * 3600, 60, True)
    assert (s.bf_max_job_test, s.default_queue_depth, s.sched_interval, s.batch_sched_delay) == (1000, 1000, 2, 1)
    assert (config.priority.fair_share, config.priority.age, config.priority.calc_period) == (100_000, 10_000, 60)
    assert config.enforce_limits
    assert report.unmodelled == ()


FRAGMENTS = [
    *MINIMAL.splitlines(),
    *UNMODELLED,
    "SchedulerParameters=bf_window=,bf_interval",
    "NodeName=m[1-3] Gres=gpu:2 Feature=a State=FUTURE",
    "PartitionName=DEFAULT MaxTime=1-0",
    "PartitionName=q Nodes=",
    "NodeSet=s Nodes=n[1-2] Feature=a",
    "DownNodes=n1",
    "Include other",
    "PriorityWeightTRES=CPU=1K",
    "NodeName=",
    "PartitionName= Nodes=ALL Default=YES",
]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=20), max_size=12).map("\n".join) | st.text(max_size=60),
    st.sampled_from(["", ASSOC, QOS]) | st.text(max_size=40),
)
@example("NodeName=n[1-99999999] CPUs=1\nPartitionName=p Nodes=ALL", "")
@example("NodeName=n1 Weight=-1\nPartitionName=p Nodes=n1", "")
def test_any_text_is_a_cluster_or_a_config_error(text: str, dump: str):
    beside = {"gres.conf": text, "assoc.txt": dump, "qos.txt": dump} if dump else {}
    try:
        report = read_slurm_conf(text, "f", beside, lambda path, _: (path, "A=1"))
    except ConfigError:
        return
    assert report.config.node_count > 0
