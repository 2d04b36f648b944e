"""Find the nodes and devices of this Slurm job, or of this machine outside Slurm."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError
from mirage.domain.pool import Pool
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from mirage.allocation.engine.slurmcommands import SlurmCommands

NO_MEMORY_LIMIT = 1 << 40
"""Megabytes of a node whose memory Slurm does not manage."""

VARIABLES = {"gpu": ("CUDA_VISIBLE_DEVICES",), "npu": ("ASCEND_RT_VISIBLE_DEVICES",)}
"""The variables that show a process its devices, by the name of the generic resource."""

_ANY_VARIABLE = ("CUDA_VISIBLE_DEVICES",)
_FIELD = re.compile(r"(\w[\w:./-]*)=(\S*)")
_NODES = re.compile(r"\bNodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_ONLY_COUNTED = re.compile(r"((?:^|,)[A-Za-z_]\w*(?::[A-Za-z][\w.-]*)?)\(CNT:(\d+)\)")
"""``npu:ascend(CNT:4)``: Slurm's notation for devices without device files."""
_GRES = re.compile(r"([A-Za-z_]\w*)(?::([\w.-]+))?:(\d+)(?:\((?:IDX|CNT):([\d,-]*)\))?")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or other device."""

    index: int
    kind: str
    """Such as ``gpu:a100``."""
    island: int = 0
    """Equal for devices of a node that fast links join, or whose links are not known."""


@dataclass(frozen=True, slots=True)
class NodeFound:
    """One node with its devices, CPUs and memory."""

    name: str
    cpus: int
    memory_mb: int
    devices: tuple[Device, ...]
    switch: str = ""
    """Its leaf switch or its block; equal for nodes whose place is not known."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The nodes and devices that this link may use, and until when."""

    nodes: tuple[NodeFound, ...]
    job: int = 0
    start: float | None = None
    end: float | None = None
    """End of the allocation; ``None``: no time limit, or not known."""
    restarts: int = 0

    @property
    def length(self) -> float:
        """Seconds from its start to its end."""
        return float("inf") if self.end is None or self.start is None else self.end - self.start

    def pool(self) -> Pool:
        """The same as arrays."""
        kinds = tuple(dict.fromkeys(device.kind for node in self.nodes for device in node.devices))
        owner = [row for row, node in enumerate(self.nodes) for _ in node.devices]
        every = [device for node in self.nodes for device in node.devices]
        return Pool(
            node_names=tuple(node.name for node in self.nodes),
            cpus=np.array([node.cpus for node in self.nodes], np.int32),
            memory_mb=np.array([node.memory_mb for node in self.nodes], np.int64),
            switch=_numbered(node.switch for node in self.nodes),
            device_node=np.array(owner, np.int32),
            device_index=np.array([device.index for device in every], np.int32),
            device_kind=np.array([kinds.index(device.kind) for device in every], np.int32),
            island=_numbered((node.name, device.island) for node in self.nodes for device in node.devices),
            kinds=kinds,
            price=np.ones(len(kinds)),
        )


def _numbered(names: Iterable[Hashable]) -> np.ndarray:
    """Numbers from 0, equal for equal names."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)


def visible(kind: str, indices: Sequence[int]) -> dict[str, str]:
    """The variables that show a process only these devices of one node."""
    return {name: ",".join(map(str, indices)) for name in VARIABLES.get(kind.partition(":")[0], _ANY_VARIABLE)}


def read_job(slurm: SlurmCommands, job: int, environment: Mapping[str, str]) -> Allocation:
    """The nodes of a Slurm job. Raises ``ClusterUnavailable``, also where the output cannot be parsed."""
    shown = slurm.ask("scontrol", "--oneliner", "show", "job", "--details", str(job))
    fields = dict(_FIELD.findall(shown))
    memory = _real_memory(slurm, fields.get("NodeList", ""))
    nodes = [node for match in _NODES.finditer(shown) for node in _nodes(match, memory)]
    if not nodes:
        raise ClusterUnavailable(f"scontrol shows no nodes of job {job}: {shown[:200]!r}")
    return Allocation(
        tuple(_as_seen(node, environment) for node in sorted(nodes, key=lambda node: node.name)),
        job,
        _instant(fields.get("StartTime", "")),
        _instant(fields.get("EndTime", "")),
        int(fields.get("Restarts", "0") or 0),
    )


def read_machine(devices: int | None, environment: Mapping[str, str]) -> Allocation:
    """This machine, with the devices that ``nvidia-smi`` shows, or with ``devices`` devices where given.

    Devices that ``CUDA_VISIBLE_DEVICES`` hides do not count. Raises ``ConfigError``.
    """
    found = _asked_nvidia() if devices is None else [Device(index, "gpu") for index in range(devices)]
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if devices is None and shown is not None:
        found = _left(found, shown)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    cpus = len(os.sched_getaffinity(0))
    return Allocation((NodeFound(socket.gethostname(), cpus, memory, tuple(found)),))


def _nodes(match: re.Match[str], memory: Mapping[str, int]) -> list[NodeFound]:
    names, cpus, given, gres = match.groups()
    devices = _devices(gres)
    return [
        NodeFound(name, _count(cpus), int(given) or memory.get(name, NO_MEMORY_LIMIT), devices)
        for name in expand(names)
    ]


def _count(ids: str) -> int:
    return len(_numbers(ids))


def _numbers(text: str) -> list[int]:
    pairs = (part.partition("-") for part in text.split(",") if part)
    return [number for low, _, high in pairs for number in range(int(low), int(high or low) + 1)]


def _devices(gres: str) -> tuple[Device, ...]:
    """Parse ``gpu:a100:3(IDX:0-2),npu:8(CNT:8)``; devices without indices are numbered from 0."""
    devices = list[Device]()
    for name, of, count, indices in _GRES.findall(_ONLY_COUNTED.sub(r"\1:\2", gres)):
        numbers = _numbers(indices) if "IDX" in gres else []
        kind = f"{name}:{of}" if of else name
        devices += (
            Device(number, kind) for number in (numbers if len(numbers) == int(count) else range(int(count)))
        )
    return tuple(sorted(devices, key=lambda device: device.index))


def _as_seen(node: NodeFound, environment: Mapping[str, str]) -> NodeFound:
    """Device indices as processes on the node count them.

    Where Slurm hides the devices that a job does not hold, a process counts the others from 0. The job's own
    variable shows whether it does, on the node of its batch script.
    """
    shown = environment.get("CUDA_VISIBLE_DEVICES", "")
    held = environment.get("SLURM_JOB_GPUS", "")
    if not held or not shown or sorted(_numbers_or_none(shown)) == sorted(_numbers_or_none(held)):
        return node
    counted = dict.fromkeys({device.kind for device in node.devices}, -1)
    devices = []
    for device in node.devices:
        counted[device.kind] += 1
        devices.append(Device(counted[device.kind], device.kind))
    return NodeFound(node.name, node.cpus, node.memory_mb, tuple(devices))


def _numbers_or_none(text: str) -> list[int]:
    try:
        return _numbers(text)
    except ValueError:
        return []


def _real_memory(slurm: SlurmCommands, nodes: str) -> dict[str, int]:
    rows = slurm.ask("scontrol", "--oneliner", "show", "node", nodes).splitlines()
    every = (dict(_FIELD.findall(row)) for row in rows)
    return {row["NodeName"]: int(row["RealMemory"]) for row in every if "NodeName" in row and "RealMemory" in row}


def _instant(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _asked_nvidia() -> list[Device]:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise ConfigError("--devices", "nvidia-smi not found; state the number of devices with --devices N")
    argv = [program, "--query-gpu=index,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603 - found above
        return [_nvidia(line) for line in done.stdout.splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError, BadSpelling) as error:
        raise ConfigError("--devices", f"nvidia-smi failed; use --devices N instead: {error}") from error


def _nvidia(line: str) -> Device:
    index, _, name = line.partition(",")
    if not index.strip().isdecimal():
        raise BadSpelling(line, "is not a device as nvidia-smi lists them")
    return Device(int(index), "gpu:" + re.sub(r"[^a-z0-9]+", "-", name.strip().lower()).strip("-"))


def _left(found: list[Device], shown: str) -> list[Device]:
    wanted = [word.strip() for word in shown.split(",") if word.strip()]
    if not all(word.isdecimal() for word in wanted):
        problem = f"{shown!r} does not name devices by index; use --devices N instead"
        raise ConfigError("CUDA_VISIBLE_DEVICES", problem)
    return [device for device in found if str(device.index) in wanted]
