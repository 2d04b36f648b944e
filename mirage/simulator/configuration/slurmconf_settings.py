"""Settings of a slurm.conf: scheduler and priorities as configuration, and what the simulator does not follow.

Units and defaults are those of man slurm.conf (22.05 to 26.05): bf_window is in minutes, the other backfill
times in seconds, OverTimeLimit in minutes, PriorityMaxAge and PriorityDecayHalfLife are time strings.

What shapes schedules and is not simulated is said in sentences (``unmodelled``). Settings that do not bear on
when jobs start (log files, ports, accounting stores, limits on slurmctld's own computing time) say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.simulator.cluster import FairShare, PriorityWeights, SchedulerParameters
from mirage.simulator.configuration import spellings
from mirage.simulator.configuration.slurmconf_nodes import consumable_memory, effective, over_time_limit, read
from mirage.slurm.conf import ConfSetting, ConfText, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.job import Seconds
    from mirage.slurm.conf import ConfRecord

MAX_WEIGHT = (1 << 32) - 1
MAX_NUMBER = (1 << 62) - 1
MAX_ARRAY_SIZE = 4_000_001
DEFAULT_ARRAY_SIZE = 1001

UNITS: dict[str, int] = {
    "bf_interval": 1,
    "bf_window": 60,
    "bf_resolution": 1,
    "bf_max_job_test": 1,
    "bf_max_job_user": 1,
    "bf_max_job_part": 1,
    "bf_max_job_array_resv": 1,
    "bf_max_job_start": 1,
    "bf_min_age_reserve": 1,
    "bf_min_prio_reserve": 1,
    "bf_window_linear": 1,
    "default_queue_depth": 1,
    "sched_interval": 1,
    "batch_sched_delay": 1,
    "max_array_tasks": 1,
}
"""SchedulerParameters that the simulator has, and how many of its units make one of theirs."""

FLAGS = ("bf_continue",)
OFF = -1
"""``bf_interval=-1`` switches backfill off, ``sched_interval=-1`` the periodic main loop."""


def options(setting: ConfSetting | None) -> dict[str, str]:
    """A comma-separated list of ``name`` or ``name=value`` as a mapping; names in lower case, last one wins."""
    pairs = (word.partition("=") for word in (setting.words() if setting else ()))
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def scheduler_parameters(text: ConfText) -> SchedulerParameters:
    """The scheduler's parameters in seconds and counts; raises ``ConfigError`` for what is not a number."""
    setting = text.get("schedulerparameters")
    given = options(setting)
    values = {name: _number(setting, name, given[name]) for name in UNITS if setting and name in given}
    kind = text.get("schedulertype")
    builtin = kind is not None and kind.value.lower() == "sched/builtin"
    backfill = not builtin and values.get("bf_interval") != OFF
    for name in ("bf_interval", "sched_interval"):
        if values.get(name) == OFF:
            del values[name]
    values.setdefault("max_array_tasks", _array_size(text))
    return SchedulerParameters(
        backfill=backfill,
        bf_continue="bf_continue" in given,
        over_time_limit=over_time_limit(text.get("overtimelimit"), 0),
        **values,
    )


def _number(setting: ConfSetting, name: str, value: str) -> int:
    low = OFF if name in ("bf_interval", "sched_interval") else 0
    number = whole_number(value, f"{setting.where}: {name}", low, MAX_NUMBER)
    return number if number == OFF else number * UNITS[name]


def _array_size(text: ConfText) -> int:
    setting = text.get("maxarraysize")
    return setting.integer(0, MAX_ARRAY_SIZE) if setting else DEFAULT_ARRAY_SIZE


def priority_weights(text: ConfText) -> PriorityWeights:
    """The multifactor weights; all zero for priority/basic. Raises ``ConfigError`` for unreadable values."""
    kind = text.get("prioritytype")
    if kind is not None and kind.value.lower() == "priority/basic":
        return PriorityWeights()
    flags = options(text.get("priorityflags"))
    classic = "no_fair_tree" in flags or "depth_oblivious" in flags
    tres, small = text.get("priorityweighttres"), text.get("priorityfavorsmall")
    damp = text.get("fairsharedampeningfactor")
    return PriorityWeights(
        age=_weight(text, "age"),
        fair_share=_weight(text, "fairshare"),
        job_size=_weight(text, "jobsize"),
        partition=_weight(text, "partition"),
        qos=_weight(text, "qos"),
        association=_weight(text, "assoc"),
        tres=read(tres, spellings.tres_weights) if tres else (),
        max_age=_period(text, "prioritymaxage", 7 * 86_400),
        calc_period=max(60, _period(text, "prioritycalcperiod", 300)),
        decay_half_life=_period(text, "prioritydecayhalflife", 7 * 86_400),
        favor_small=small.flag() if small else False,
        small_relative_to_time="small_relative_to_time" in flags,
        accrue_always="accrue_always" in flags,
        fair_share_algorithm=FairShare.CLASSIC if classic else FairShare.FAIR_TREE,
        dampening=damp.integer(1, 65_533) if damp else 1,
    )


def _weight(text: ConfText, factor: str) -> int:
    setting = text.get(f"priorityweight{factor}")
    return setting.integer(0, MAX_WEIGHT) if setting else 0


def _period(text: ConfText, key: str, otherwise: Seconds) -> Seconds:
    setting = text.get(key)
    return read(setting, spellings.slurm_duration) if setting else otherwise


_GLOBAL: dict[str, tuple[tuple[str, ...], str]] = {
    # key: (values that switch it off, what the simulator does instead)
    "PreemptType": (("preempt/none",), "no job is ever preempted"),
    "Licenses": ((), "licences are not counted"),
    "TopologyPlugin": (
        ("topology/none", "topology/default", "topology/flat"),
        "nodes are chosen without regard to switches or blocks",
    ),
    "SuspendTime": (("-1", "infinite", "none"), "idle nodes stay powered on, so no job waits for a node to boot"),
    "PrioritySiteFactorPlugin": (("site_factor/none",), "the site factor of the priority is zero"),
    "PriorityUsageResetPeriod": (("none",), "usage decays but is never reset"),
    "JobSubmitPlugins": ((), "jobs are taken as the trace has them, not as a submit plugin would change them"),
    "DependencyParameters": ((), "dependencies behave as by default"),
    "BurstBufferType": (("burst_buffer/none",), "burst buffers are not counted and nothing is staged"),
    "CompleteWait": (("0",), "nodes are free at the moment their job ends"),
    "FederationParameters": ((), "the cluster stands alone"),
    "JobRequeue": (("1",), "jobs of failed nodes are requeued where the job allows it"),
    "RequeueExit": ((), "no job is requeued for its exit code"),
    "RequeueExitHold": ((), "no job is requeued for its exit code"),
    "ResvOverRun": (("0",), "jobs are stopped when their reservation ends"),
    "DefMemPerCPU": (("0", "unlimited"), "a job that asks for no memory gets none"),
    "DefMemPerGPU": (("0", "unlimited"), "a job that asks for no memory gets none"),
    "DefMemPerNode": (("0", "unlimited"), "a job that asks for no memory gets none"),
    "MaxMemPerCPU": (("0", "unlimited"), "memory requests are not limited"),
    "MaxMemPerNode": (("0", "unlimited"), "memory requests are not limited"),
}

_PARTITION: dict[str, tuple[tuple[str, ...], str]] = {
    "AllowAccounts": (("all",), "every account may use them"),
    "AllowGroups": (("all",), "every group may use them"),
    "AllowQos": (("all",), "every QOS may use them"),
    "DenyAccounts": ((), "no account is rejected"),
    "DenyQos": ((), "no QOS is rejected"),
    "AllocNodes": (("all",), "jobs may come from every host"),
    "Alternate": ((), "jobs are not moved to another partition"),
    "ExclusiveUser": (("no",), "users share nodes"),
    "ExclusiveTopo": (("no",), "jobs share switches"),
    "LLN": (("no",), "nodes are filled in order, not by least load"),
    "MaxCPUsPerNode": (("unlimited", "0"), "all CPUs of a node are open to them"),
    "MaxCPUsPerSocket": (("unlimited", "0"), "all CPUs of a socket are open to them"),
    "MaxMemPerCPU": (("unlimited", "0"), "memory requests are not limited"),
    "MaxMemPerNode": (("unlimited", "0"), "memory requests are not limited"),
    "DefMemPerCPU": (("unlimited", "0"), "a job that asks for no memory gets none"),
    "DefMemPerGPU": (("unlimited", "0"), "a job that asks for no memory gets none"),
    "DefMemPerNode": (("unlimited", "0"), "a job that asks for no memory gets none"),
    "DefCpuPerGPU": ((), "a job that asks for GPUs gets only the CPUs it asks for"),
    "JobDefaults": ((), "jobs ask for exactly what the trace says"),
    "PreemptMode": (("off",), "no job is ever preempted"),
    "ReqResv": (("no",), "no reservation is required"),
    "RootOnly": (("no",), "every user may use them"),
    "SelectTypeParameters": ((), "resources are allocated as in the rest of the cluster"),
    "SuspendTime": (("-1", "infinite", "none"), "idle nodes stay powered on"),
}

_PRIORITY_FLAGS: dict[str, str] = {
    "calculate_running": "",
    "accrue_always": "",
    "no_fair_tree": "",
    "small_relative_to_time": "",
    "depth_oblivious": "classic fair share is used, in which depth counts",
    "incr_only": "priorities may fall",
    "max_tres": "the billing of a job is the sum of its weighted resources, not their maximum",
    "no_normal_all": "all factors are normalised",
    "no_normal_assoc": "the association factor is normalised",
    "no_normal_part": "the partition factor is normalised",
    "no_normal_qos": "the QOS factor is normalised",
    "no_normal_tres": "the TRES factors are normalised",
}

_WITHOUT_EFFECT = frozenset(
    # Limits on slurmctld's own time and load, steps, and what users may do: a simulated controller is never late.
    [
        "allow_zero_lic",
        "bb_array_stage_cnt",
        "bf_max_time",
        "bf_node_space_size",
        "bf_yield_interval",
        "bf_yield_rpc_cnt",
        "bf_yield_sleep",
        "build_queue_timeout",
        "correspond_after_task_cnt",
        "default_gbytes",
        "disable_hetjob_steps",
        "disable_job_shrink",
        "disable_user_top",
        "enable_hetjob_steps",
        "enable_job_state_cache",
        "enable_user_top",
        "ignore_constraint_validation",
        "ignore_numa",
        "ignore_prefer_validation",
        "inventory_interval",
        "max_rpc_cnt",
        "max_sched_time",
        "max_script_size",
        "no_backup_scheduling",
        "no_env_cache",
        "requeue_setup_env_fail",
        "salloc_wait_nodes",
        "sbatch_wait_nodes",
        "sched_min_interval",
        "spec_cores_first",
        "step_retry_count",
        "step_retry_time",
        "max_submit_line_size",
        "max_depend_depth",
    ]
)


def unmodelled(text: ConfText) -> Iterator[str]:
    """One sentence for each setting that the simulator does not follow, general settings first."""
    for key, (off, instead) in _GLOBAL.items():
        setting = text.get(key)
        if setting is not None and _is_on(setting, off):
            yield f"{setting.where}={setting.value}: not modelled; {instead}."
    yield from _scheduler(text)
    yield from _priority(text)
    yield from _weights(text)
    yield from _enforcement(text)
    yield from _nodes(text)
    yield from _partitions(text)


def _is_on(setting: ConfSetting, off: tuple[str, ...]) -> bool:
    return bool(setting.value) and setting.value.lower() not in off


def _scheduler(text: ConfText) -> Iterator[str]:
    setting = text.get("schedulerparameters")
    for name, value in options(setting).items():
        if setting is None or name in FLAGS or name in _WITHOUT_EFFECT:
            continue
        shown = f"{setting.where}: {name}={value}" if value else f"{setting.where}: {name}"
        if name not in UNITS:
            yield f"{shown}: not modelled; jobs are scheduled as if it were not there."
        elif name == "sched_interval" and value == str(OFF):
            yield f"{shown}: the simulator's main loop always runs, here every 60 s."


def _priority(text: ConfText) -> Iterator[str]:
    setting = text.get("priorityflags")
    for name in options(setting):
        instead = _PRIORITY_FLAGS.get(name, "priorities are computed as if it were not there")
        if setting is not None and instead:
            yield f"{setting.where}={name.upper()}: not modelled; {instead}."


def _weights(text: ConfText) -> Iterator[str]:
    given = [text.get("priorityweighttres")]
    given += [record.get("tresbillingweights") for record in effective(text, "partitionname")]
    for setting in (s for s in given if s is not None):
        for name, _ in spellings.tres_weights(setting.value):
            if not spellings.followed(name):
                yield f"{setting.where}: {name}: not modelled; only cpu, mem, node and gres/NAME are counted."


def _enforcement(text: ConfText) -> Iterator[str]:
    setting = text.get("enforcepartlimits")
    if setting is None or setting.value.upper() == "NO":
        place = setting.where if setting else f"{text.file}: EnforcePartLimits"
        yield f"{place}=NO: jobs beyond a partition's limits are rejected here; Slurm keeps them waiting."


def _nodes(text: ConfText) -> Iterator[str]:
    records = effective(text, "nodename")
    for state, instead in (
        ("cloud", "these nodes are always on"),
        ("future", "these nodes do not exist yet and are left out"),
    ):
        named = [r.name for r in records if (s := r.get("state")) and s.value.lower() == state]
        if named:
            yield f"NodeName {_list(named)}: State={state.upper()}: {instead}."
    endless = [r.name for r in records if (s := r.get("gres")) and spellings.NOT_CONSUMED in s.value]
    if endless:
        yield f"NodeName {_list(endless)}: Gres no_consume: left out; jobs that ask for it are rejected."
    parameters = text.get("selecttypeparameters")
    by_core = parameters is None or "cr_cpu" not in parameters.value.lower()
    threaded = [r.name for r in records if (s := r.get("threadspercore")) and s.value not in ("", "1")]
    if by_core and threaded:
        yield f"NodeName {_list(threaded)}: ThreadsPerCore: CPUs are allocated singly, Slurm gives whole cores."


def _partitions(text: ConfText) -> Iterator[str]:
    records = effective(text, "partitionname")
    memory = consumable_memory(text)
    for key, (off, instead) in _PARTITION.items():
        if "Mem" in key and not memory:
            continue
        named = [r.name for r in records if (s := r.get(key)) and _is_on(s, off)]
        if named:
            yield f"PartitionName {_list(named)}: {key}: not modelled; {instead}."
    yield from _sharing_and_state(records)


def _sharing_and_state(records: tuple[ConfRecord, ...]) -> Iterator[str]:
    for record in records:
        share, state = record.get("oversubscribe", "shared"), record.get("state")
        if share and share.value.lower().split(":")[0] in ("force", "yes"):
            yield f"{share.where}={share.value}: not modelled; two jobs never share a resource."
        if state and state.value.lower() in ("drain", "inactive", "down"):
            yield f"{state.where}={state.value}: the partition takes no jobs and starts none."


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
