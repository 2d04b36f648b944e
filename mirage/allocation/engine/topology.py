"""Fast links between devices of a node and switches between nodes, from nvidia-smi and Slurm."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.allocation.engine.slurmcommands import own_environment
from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.slurm.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirage.allocation.engine.discovery import Allocation, NodeFound
    from mirage.allocation.engine.slurmcommands import SlurmCommands

_ASK = ("nvidia-smi", "topo", "-m")
_NODE_TIMEOUT = 20
_TIMEOUT = 40.0
_END = 5.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Newer versions underline the heading, also in pipes."""
_GPU = re.compile(r"GPU(\d+)")
_NVLINK = re.compile(r"NV\d+")
_FIELD = re.compile(r"(\w+)=(\S*)")
# Each line carries its node, because lines of several nodes arrive mixed.
_RANK = f'timeout {_NODE_TIMEOUT} {" ".join(_ASK)} 2>/dev/null | sed "s/^/$SLURMD_NODENAME /"'


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
        fields = dict(_FIELD.findall(line))
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
    matrix = _said(_ASK, None)
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
        said, _ = child.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.terminate()  # srun takes its step along
        try:
            said, _ = child.communicate(timeout=_END)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
    return said.decode(errors="replace")
