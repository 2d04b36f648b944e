"""Islands and switches, from what machines were recorded to say."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.engine.discovery import (
    Allocation,
    Device,
    NodeFound,
    islands_of,
    read_machine,
    switches_of,
    with_own_islands,
    with_topology,
)
from mirage.allocation.engine.slurmcommands import SlurmCommands
from mirage.domain.errors import BadSpelling

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Eight V100 as a cube of NVLinks in which not all are joined directly (Oneflow-Inc/DLPerf, report on BERT).
CUBE = """\
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    mlx5_0  CPU Affinity
GPU0     X      NV1     NV1     NV2     NV2     SYS     SYS     SYS     NODE    0-11,24-35
GPU1    NV1      X      NV2     NV1     SYS     NV2     SYS     SYS     NODE    0-11,24-35
GPU2    NV1     NV2      X      NV2     SYS     SYS     NV1     SYS     PIX     0-11,24-35
GPU3    NV2     NV1     NV2      X      SYS     SYS     SYS     NV1     PIX     0-11,24-35
GPU4    NV2     SYS     SYS     SYS      X      NV1     NV1     NV2     SYS     12-23,36-47
GPU5    SYS     NV2     SYS     SYS     NV1      X      NV2     NV1     SYS     12-23,36-47
GPU6    SYS     SYS     NV1     SYS     NV1     NV2      X      NV2     SYS     12-23,36-47
GPU7    SYS     SYS     SYS     NV1     NV2     NV1     NV2      X      SYS     12-23,36-47
mlx5_0  NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS      X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks
"""
# Four RTX 3090 with a bridge for each two (aikitoria/open-gpu-kernel-modules, pull request 18).
BRIDGES = """\
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      PHB     NV4     NODE    0-23    0               N/A
GPU1    PHB      X      NODE    NV4     0-23    0               N/A
GPU2    NV4     NODE     X      PHB     0-23    0               N/A
GPU3    NODE    NV4     PHB      X      0-23    0               N/A
"""
# Four A100 of which two are bridged, with tabs (NVIDIA/k8s-device-plugin, issue 436).
ONE_BRIDGE = """\
	GPU0	GPU1	GPU2	GPU3	mlx5_0	mlx5_1	CPU Affinity	NUMA Affinity
GPU0	 X 	NV12	SYS	SYS	NODE	NODE	0-27,56-83	0
GPU1	NV12	 X 	SYS	SYS	NODE	NODE	0-27,56-83	0
GPU2	SYS	SYS	 X 	NODE	SYS	SYS	28-55,84-111	1
GPU3	SYS	SYS	NODE	 X 	SYS	SYS	28-55,84-111	1
mlx5_0	NODE	NODE	SYS	SYS	 X 	PIX
mlx5_1	NODE	NODE	SYS	SYS	PIX	 X
"""
# Four H100, each joined to each (NVIDIA/nccl, issue 1617).
ALL = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    NIC2    NIC3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV6     NV6     NV6     PIX     SYS     SYS     SYS     6,14,22,30      3               N/A
GPU1    NV6      X      NV6     NV6     SYS     PIX     SYS     SYS     4,12,20,28      1               N/A
GPU2    NV6     NV6      X      NV6     SYS     SYS     PIX     SYS     7,15,23,31      7               N/A
GPU3    NV6     NV6     NV6      X      SYS     SYS     SYS     PIX     5,13,21,29      5               N/A
NIC0    PIX     SYS     SYS     SYS      X      SYS     SYS     SYS
NIC1    SYS     PIX     SYS     SYS     SYS      X      SYS     SYS
NIC2    SYS     SYS     PIX     SYS     SYS     SYS      X      SYS
NIC3    SYS     SYS     SYS     PIX     SYS     SYS     SYS      X
"""
# Two RTX 5090 (noonghunna/club-3090, issue 1229); newer versions underline the heading.
NONE = """\
\x1b[4m\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPHB\t0-63\t0\t\tN/A
GPU1\tPHB\t X \t0-63\t0\t\tN/A
"""
# The University of Melbourne's Spartan, as published, with the nodes of the upper level as Slurm prints them.
TREE = """\
SwitchName=sp-266-p16-1 Level=1 LinkSpeed=1 Nodes=spartan-bm[001-043,053-066] Switches=le-266-q11-1-res
SwitchName=le-266-q11-1-res Level=0 LinkSpeed=1 Nodes=spartan-bm[053-066]
SwitchName=le-266-r17-1-res Level=0 LinkSpeed=1 Nodes=spartan-bm[001-020]
SwitchName=le-266-r19-1-res Level=0 LinkSpeed=1 Nodes=spartan-bm[021-029],spartan-bm[039-043]
"""
# Slurm 25 on GB300 nodes.
BLOCKS = """\
BlockName=gb300_b0 BlockIndex=0 Nodes=10.140.71.103,10.140.88.115 BlockSize=2
BlockName=gb300_b1 BlockIndex=1 Nodes=10.140.79.152,10.140.93.120 BlockSize=2
AggregatedBlock=gb300_b[0-1] BlockIndex=2 Nodes=10.140.71.103,10.140.79.152,10.140.88.115,10.140.93.120 BlockSize=4
"""


def groups(island: Mapping[int, int]) -> list[list[int]]:
    return [[gpu for gpu, of in sorted(island.items()) if of == one] for one in sorted(set(island.values()))]


@pytest.mark.parametrize(
    ("matrix", "wanted"),
    [
        (CUBE, [list(range(8))]),
        (BRIDGES, [[0, 2], [1, 3]]),
        (ONE_BRIDGE, [[0, 1], [2], [3]]),
        (ALL, [[0, 1, 2, 3]]),
        (NONE, [[0], [1]]),
        ("", []),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", []),
    ],
)
def test_islands_are_what_nvlinks_join(matrix: str, wanted: list[list[int]]) -> None:
    assert groups(islands_of(matrix)) == wanted


@given(st.integers(1, 9), st.sets(st.tuples(st.integers(0, 8), st.integers(0, 8))))
def test_islands_are_the_connected_components(count: int, links: set[tuple[int, int]]) -> None:
    joined = {(a, b) for a, b in links if a != b and a < count and b < count}
    joined |= {(b, a) for a, b in joined}
    cells = [["X" if a == b else "NV2" if (a, b) in joined else "SYS" for b in range(count)] for a in range(count)]
    head = "\t".join(("", *(f"GPU{a}" for a in range(count)), "CPU Affinity"))
    matrix = "\n".join((head, *("\t".join((f"GPU{a}", *row, "0-7")) for a, row in enumerate(cells))))
    reached = (
        np.linalg.matrix_power(np.array([[cell != "SYS" for cell in row] for row in cells], float), count) > 0
    )
    island = islands_of(matrix)
    assert all((island[a] == island[b]) == reached[a, b] for a in range(count) for b in range(count))


def test_a_tree_gives_the_lowest_switch_of_each_node() -> None:
    found = switches_of(TREE)
    assert found["spartan-bm053"] == "le-266-q11-1-res"
    assert found["spartan-bm001"] == "le-266-r17-1-res"
    assert found["spartan-bm029"] == found["spartan-bm039"] == "le-266-r19-1-res"
    assert found["spartan-bm030"] == "sp-266-p16-1"  # below no switch that is nearer


def test_blocks_are_switches_and_what_they_add_up_to_is_none() -> None:
    found = switches_of(BLOCKS)
    assert found["10.140.71.103"] == found["10.140.88.115"] == "gb300_b0"
    assert found["10.140.93.120"] == "gb300_b1"


def test_without_a_topology_there_are_no_switches() -> None:
    assert switches_of("No topology information available\n") == {}
    with pytest.raises(BadSpelling):
        switches_of("SwitchName=s Level=0 Nodes=n[1-")


def node(name: str, count: int = 4) -> NodeFound:
    return NodeFound(name, 8, 1000, tuple(Device(index, "gpu:a100") for index in range(count)))


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(0o755)


SRUN = """\
import sys
nodes = next(word for word in sys.argv if word.startswith("--nodelist=")).partition("=")[2].split(",")
assert "--ntasks=%d" % len(nodes) in sys.argv and "--jobid=7" in sys.argv
for lines in zip(*(open("{folder}/" + n).read().splitlines() for n in nodes if n != "n3")):
    for node, line in zip(nodes, lines):
        print(node, line)
{end}
"""
SCONTROL = 'print("SwitchName=s1 Level=0 Nodes=n[1-2]")\nprint("SwitchName=s2 Level=0 Nodes=n3")'


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmCommands:
    (tmp_path / "n1").write_text(BRIDGES)
    (tmp_path / "n2").write_text(ONE_BRIDGE)
    program(tmp_path, "srun", SRUN.format(folder=tmp_path, end=""))
    program(tmp_path, "scontrol", SCONTROL)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return SlurmCommands({"PATH": str(tmp_path)})


def test_the_pool_of_a_job_knows_islands_and_switches(job: SlurmCommands) -> None:
    pool = with_topology(Allocation((node("n1"), node("n2"), node("n3")), 7), job).pool()
    assert pool.switch.tolist() == [0, 0, 1]
    # Pairs on n1, one pair and two alone on n2, and n3 has reported nothing: one island.
    assert pool.island.tolist() == [0, 1, 0, 1, 2, 2, 3, 4, 5, 5, 5, 5]


def test_a_step_that_hangs_counts_as_far_as_it_has_come(
    job: SlurmCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.allocation.engine.discovery._TOPOLOGY_TIMEOUT", 1.0)
    hang = "import time\nsys.stdout.flush()\ntime.sleep(60)"
    program(tmp_path, "srun", SRUN.format(folder=tmp_path, end=hang))
    pool = with_topology(Allocation((node("n1"), node("n3")), 7), job).pool()
    assert pool.island.tolist() == [0, 1, 0, 1, 2, 2, 2, 2]


def test_where_slurm_refuses_each_node_is_an_island_below_one_switch(job: SlurmCommands, tmp_path: Path) -> None:
    program(tmp_path, "srun", "import sys\nsys.exit('srun: error: Unable to create step')")
    program(tmp_path, "scontrol", "import sys\nsys.exit('slurm_load_topo error')")
    pool = with_topology(Allocation((node("n1"), node("n2")), 7), job).pool()
    assert (pool.island.tolist(), pool.switch.tolist()) == ([0] * 4 + [1] * 4, [0, 0])


def test_indices_that_nvidia_smi_does_not_know_are_not_trusted(job: SlurmCommands) -> None:
    held = NodeFound("n1", 8, 1000, tuple(Device(index, "gpu:a100") for index in (2, 3, 4)))
    pool = with_topology(Allocation((held,), 7), job).pool()
    assert pool.island.tolist() == [0, 0, 0]


def test_this_machine_is_asked_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "matrix").write_text(BRIDGES)
    body = f"""\
import sys
if sys.argv[1] == "topo":
    print(open("{tmp_path}/matrix").read())
else:
    print("\\n".join(f"{{index}}, NVIDIA RTX 3090" for index in range(4)))
"""
    program(tmp_path, "nvidia-smi", body)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert with_own_islands(read_machine(None, {})).pool().island.tolist() == [0, 1, 0, 1]
    assert with_own_islands(read_machine(None, {"CUDA_VISIBLE_DEVICES": "0,1,3"})).pool().island.tolist() == [
        0,
        1,
        1,
    ]
