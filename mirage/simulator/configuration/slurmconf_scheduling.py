"""SchedulerType, SchedulerParameters and the Priority settings of slurm.conf.

Units and defaults are those of man slurm.conf (22.05 to 26.05): bf_window is in minutes, the other backfill
times in seconds, OverTimeLimit in minutes, PriorityMaxAge and PriorityDecayHalfLife are time strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.simulator.cluster import FairShare, PriorityWeights, SchedulerParameters
from mirage.simulator.configuration import spellings
from mirage.simulator.configuration.slurmconf_nodes import over_time_limit, read
from mirage.slurm.conf import ConfText, Setting, whole_number

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

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


def options(setting: Setting | None) -> dict[str, str]:
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


def _number(setting: Setting, name: str, value: str) -> int:
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
