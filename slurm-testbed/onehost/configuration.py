"""Configuration files: templates, and the values that a testbed's settings replace in them."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from onehost import clock
from onehost.people import myself

if TYPE_CHECKING:
    from onehost.layout import Layout
    from onehost.settings import Settings

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
LARGEST_TIMEOUT_S = 60_000
"""Slurm keeps timeouts in 16 bits."""

HARDWARE = {
    "cpu": "CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=256000",
    "v100": "CPUs=40 Boards=1 SocketsPerBoard=2 CoresPerSocket=20 ThreadsPerCore=1 RealMemory=384000"
    " Gres=gpu:v100:4 Features=v100,nvlink",
    "a100": "CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000"
    " Gres=gpu:a100:4 Features=a100,nvlink",
    "npu": "CPUs=96 Boards=1 SocketsPerBoard=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=768000"
    " Gres=npu:ascend:8 Features=npu",
}
PARTITIONS = {
    "cpu": ("cpu", "Default=YES MaxTime=2-00:00:00 DefaultTime=01:00:00"),
    "v100": ("v100", "MaxTime=2-00:00:00 DefaultTime=01:00:00"),
    "a100": ("a100", "MaxTime=2-00:00:00 DefaultTime=01:00:00"),
    "debug": ("a100", "MaxTime=00:30:00 MaxNodes=2 PriorityTier=2"),
    "npu": ("npu", "MaxTime=1-00:00:00 DefaultTime=01:00:00"),
}
PRICES = {"v100": "GRES/gpu=1.0", "a100": "GRES/gpu=3.0"}
"""Billing weight of a GPU, where accounting runs."""
WITHOUT_ACCOUNTING = (
    "AccountingStorageType",
    "AccountingStorageHost",
    "AccountingStoragePort",
    "AccountingStoragePass",
    "AccountingStorageEnforce",
    "AccountingStoreFlags",
    "AccountingStorageTRES",
    "JobAcctGatherType",
    "JobAcctGatherFrequency",
)


def write(settings: Settings, layout: Layout) -> None:
    """Write every configuration file of this testbed."""
    lines = read_keys(fill("slurm.conf", settings))
    lines |= changes_of_speed(settings, layout) | changes_of_user(settings)
    if settings.priority_flags:
        lines["PriorityFlags"] = settings.priority_flags
    for line in settings.conf_lines:
        key, _, value = line.partition("=")
        lines[key] = value
    if not settings.privileged:
        for key in WITHOUT_ACCOUNTING:
            lines.pop(key, None)
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    layout.conf.write_text(text + "\n".join(node_lines(settings) + partition_lines(settings)) + "\n")
    for name in ("gres.conf", "cgroup.conf"):
        (layout.etc / name).write_text(fill(name, settings))
    write_task_prolog(layout)
    if settings.privileged:
        write_slurmdbd(settings, layout)


def write_slurmdbd(settings: Settings, layout: Layout) -> None:
    """slurmdbd requires that only its user can read its file."""
    lines = read_keys(fill("slurmdbd.conf", settings))
    if settings.speed > 1:
        lines["MessageTimeout"] = str(message_timeout(settings.speed))
    path = layout.etc / "slurmdbd.conf"
    path.touch(mode=0o600)
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def fill(name: str, settings: Settings) -> str:
    """A template with this testbed's directory, host and ports."""
    text = (TEMPLATES / name).read_text()
    values = {
        "DIR": settings.directory,
        "HOST": host(),
        "CTLD_PORT": str(settings.base_port),
        "DBD_PORT": str(settings.base_port + 1),
        "MYSQL_PORT": str(settings.base_port + 2),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def host() -> str:
    """This machine's short name, as Slurm compares it with SlurmctldHost."""
    return socket.gethostname().partition(".")[0]


def read_keys(text: str) -> dict[str, str]:
    """The settings of a file with one setting per line."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def message_timeout(speed: int) -> int:
    """Slurm seconds: 20 real ones."""
    return min(LARGEST_TIMEOUT_S, speed * 20)


def changes_of_speed(settings: Settings, layout: Layout) -> dict[str, str]:
    """Settings for a fast clock: every timeout and every budget of the scheduler counts in Slurm's seconds.

    The scheduler runs four times per real second. Nodes are never set down for silence, because on this clock a
    busy machine is silent for long.
    """
    speed = settings.speed
    if speed == 1:
        return {}
    period = speed // 4 + 1
    timeout = message_timeout(speed)
    scheduler = {
        "bf_interval": period,
        "sched_interval": period,
        "sched_min_interval": speed * 20_000,
        "batch_sched_delay": period,
        "bf_max_time": 3_600,
        "max_sched_time": 60,
        "build_queue_timeout": min(2_000_000_000, speed * 2_000_000),
        "bf_window": 4_320,
        "bf_resolution": 60,
        "bf_max_job_test": 1_000,
        "default_queue_depth": 1_000,
    }
    return {
        "AuthInfo": f"socket={layout.munge_socket},ttl=3600,cred_expire=3600",
        "SchedulerParameters": ",".join(f"{k}={v}" for k, v in scheduler.items()) + ",bf_continue",
        "TaskProlog": str(layout.etc / "taskprolog"),
        "MessageTimeout": str(timeout),
        "TCPTimeout": str(speed * 10),
        "SlurmctldTimeout": str(max(3_600, timeout)),
        "SlurmdTimeout": "0",
        "KillWait": str(max(60, speed)),
        # Each sample reads all of /proc, which takes up to a tenth of a CPU for each job.
        "JobAcctGatherFrequency": f"task={speed * 30}",
        "MinJobAge": "86400",
        "BatchStartTimeout": str(LARGEST_TIMEOUT_S),
        "UnkillableStepTimeout": str(LARGEST_TIMEOUT_S),
    }


def changes_of_user(settings: Settings) -> dict[str, str]:
    """Without root, one user is Slurm's user and runs the nodes."""
    if settings.privileged:
        return {}
    return {"SlurmUser": myself().name, "SlurmdUser": myself().name}


def node_lines(settings: Settings) -> list[str]:
    """One line per kind of node; each node's slurmd has a separate port."""
    lines, port = [], settings.base_port + 100
    for kind, count in settings.node_counts().items():
        if count:
            names = f"NodeName={kind}-[001-{count:03d}] NodeHostname={host()} NodeAddr=127.0.0.1"
            lines.append(f"{names} Port=[{port}-{port + count - 1}] {HARDWARE[kind]} State=UNKNOWN")
        port += count
    return lines


def partition_lines(settings: Settings) -> list[str]:
    """Partitions for the kinds of node that exist."""
    counts, lines = settings.node_counts(), []
    for name, (kind, limits) in PARTITIONS.items():
        price = f" TRESBillingWeights={PRICES[name]}" if name in PRICES and settings.privileged else ""
        if counts[kind]:
            lines.append(f"PartitionName={name} Nodes={kind}-[001-{counts[kind]:03d}] {limits}{price} State=UP")
    return lines


def write_task_prolog(layout: Layout) -> None:
    """Jobs of all users run on Slurm's clock: clients on the real clock do not pass it on."""
    exports = "".join(f"echo 'export {key}={value}'\n" for key, value in clock.environment(layout).items())
    path = layout.etc / "taskprolog"
    path.write_text("#!/bin/sh\n" + exports)
    path.chmod(0o755)
