"""Find the nodes and devices of this Slurm job, or of this machine outside Slurm, and what joins them.

Fast links between devices of a node are taken from nvidia-smi, switches between nodes from Slurm.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.engine.slurmcommands import own_environment
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError
from mirage.domain.pool import Pool
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from mirage.allocation.engine.slurmcommands import SlurmCommands

_ASK_NVIDIA = ("nvidia-smi", "topo", "-m")
_NODE_TIMEOUT = 20
_TOPOLOGY_TIMEOUT = 40.0
_END = 5.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Newer versions underline the heading, also in pipes."""
_GPU = re.compile(r"GPU(\d+)")
_NVLINK = re.compile(r"NV\d+")
_TOPOLOGY_FIELD = re.compile(r"(\w+)=(\S*)")
# Each line carries its node, because lines of several nodes arrive mixed.
_RANK = f'timeout {_NODE_TIMEOUT} {" ".join(_ASK_NVIDIA)} 2>/dev/null | sed "s/^/$SLURMD_NODENAME /"'


def islands_of(matrix: str) -> dict[int, int]:
    """The island of each GPU by its index, as ``nvidia-smi topo -m`` shows them; empty where it shows none.

    An island is a set of GPUs that NVLinks join, directly or through others (DGX-1's cube). A GPU without NVLinks
    is an island by itself: its links are no faster than those between any two.
    """
    rows = [_COLOURS.sub("", line).split() for line in matrix.splitlines()]
    columns = next(([cell for cell in row if _GPU.fullmatch(cell)] for row in rows if row[:1] == ["GPU0"]), [])
    island = {int(name[3:]): int(name[3:]) for name in columns}
    for row in rows:
        if "X" not in row or row[0] not in columns:
            continue
        for name, cell in zip(columns, row[1:], strict=False):
            if _NVLINK.fullmatch(cell):
                _join(island, int(row[0][3:]), int(name[3:]))
    return island


def _join(island: dict[int, int], one: int, other: int) -> None:
    low, high = sorted((island[one], island[other]))
    island |= {gpu: low for gpu, of in island.items() if of == high}


def switches_of(shown: str) -> dict[str, str]:
    """The leaf switch (tree) or the block of each node, as ``scontrol show topology`` shows them.

    Raises ``BadSpelling`` for an invalid node list.
    """
    found: dict[str, tuple[int, str]] = {}
    for line in shown.splitlines():
        fields = dict(_TOPOLOGY_FIELD.findall(line))
        name = fields.get("SwitchName") or fields.get("BlockName")
        level = fields.get("Level", "0")
        if name and level.isdecimal():
            for node in expand(fields.get("Nodes", "")):
                found[node] = min(found.get(node, (int(level), name)), (int(level), name))
    return {node: name for node, (_, name) in found.items()}


def with_topology(allocation: Allocation, slurm: SlurmCommands) -> Allocation:
    """The same nodes with their islands and switches.

    A node that does not answer is one island; without a topology in Slurm, all nodes are below one switch.
    """
    matrices = _by_node(_ask_nodes(allocation, slurm.environment) if _has_choice(allocation.nodes) else "")
    switches = _switches(slurm) if len(allocation.nodes) > 1 else {}
    nodes = (
        replace(_with_islands(node, islands_of(matrices.get(node.name, ""))), switch=switches.get(node.name, ""))
        for node in allocation.nodes
    )
    return replace(allocation, nodes=tuple(nodes))


def with_own_islands(allocation: Allocation) -> Allocation:
    """This machine with the islands of its devices, as far as nvidia-smi shows them."""
    if not _has_choice(allocation.nodes):
        return allocation
    matrix = _said(_ASK_NVIDIA, None)
    return replace(allocation, nodes=tuple(_with_islands(node, islands_of(matrix)) for node in allocation.nodes))


def _has_choice(nodes: Iterable[NodeFound]) -> bool:
    """Whether islands matter: with fewer than three devices per node no placement can choose a wrong pair."""
    return any(sum(device.kind.startswith("gpu") for device in node.devices) > 2 for node in nodes)


def _with_islands(node: NodeFound, island: Mapping[int, int]) -> NodeFound:
    """Use islands only if nvidia-smi lists all GPUs of a node: other indices may mean something else."""
    gpus = [device for device in node.devices if device.kind.startswith("gpu")]
    if not {device.index for device in gpus} <= island.keys():
        return node
    devices = (
        replace(device, island=island[device.index]) if device in gpus else device for device in node.devices
    )
    return replace(node, devices=tuple(devices))


def _switches(slurm: SlurmCommands) -> dict[str, str]:
    try:
        return switches_of(slurm.ask("scontrol", "show", "topology"))
    except (ClusterUnavailable, BadSpelling):
        return {}


def _by_node(said: str) -> dict[str, str]:
    lines: dict[str, list[str]] = {}
    for line in said.splitlines():
        node, _, rest = line.partition(" ")
        lines.setdefault(node, []).append(rest)
    return {node: "\n".join(of) for node, of in lines.items()}


def _ask_nodes(allocation: Allocation, environment: Mapping[str, str]) -> str:
    """One step over all nodes; nodes that do not answer in time are missing."""
    names = [node.name for node in allocation.nodes]
    argv = [
        "srun", f"--jobid={allocation.job}", "--job-name=mirage.topology", "--overlap", f"--ntasks={len(names)}",
        f"--nodelist={','.join(names)}", "--distribution=arbitrary", "--cpu-bind=none", "--mem=0", "--input=none",
        "--kill-on-bad-exit=0", "--chdir=/", "/bin/sh", "-c", _RANK,
    ]  # fmt: skip
    return _said(argv, own_environment(environment))


def _said(argv: Sequence[str], environment: Mapping[str, str] | None) -> str:
    """Output of a command when it ends or times out; "" where it cannot be run."""
    try:
        child = subprocess.Popen(  # noqa: S603 - fixed words, and no shell but that of the nodes
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    except OSError:
        return ""
    try:
        said, _ = child.communicate(timeout=_TOPOLOGY_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.terminate()  # srun takes its step along
        try:
            said, _ = child.communicate(timeout=_END)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
    return said.decode(errors="replace")


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
