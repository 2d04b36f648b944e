"""Nodes and devices as scontrol and nvidia-smi report them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from mirage.allocation.engine.discovery import Device, read_job, read_machine, visible
from mirage.allocation.engine.run import Wishes
from mirage.allocation.engine.slurmcommands import SlurmCommands, own_environment
from mirage.domain.errors import ClusterUnavailable, ConfigError

# As Slurm 22.05.8 prints them, shortened in the middle.
JOB = (
    "JobId=1 JobName=probe.sh UserId=alice(1001) JobState=RUNNING Requeue=1 Restarts=2 TimeLimit=00:10:00"
    " StartTime=1795315408 EndTime=1795316008 Deadline=N/A NodeList=a100-[001-003] BatchHost=a100-001 NumNodes=3"
    " TRES=cpu=32,node=2,billing=18,gres/gpu=6,gres/gpu:a100=6 JOB_GRES=gpu:a100:6  {nodes}"
    " MinCPUsNode=16 Command=/tmp/probe.sh WorkDir=/tmp TresPerNode=gres:gpu:a100:3 \n"
)
NODE = "NodeName=a100-00{n} Arch=x86_64 CPUTot=64 Gres=gpu:a100:4 RealMemory=512000 AllocMem=0 State=MIXED\n"


@dataclass(frozen=True)
class Told(SlurmCommands):
    """Slurm's commands, with answers laid down."""

    nodes: str = ""

    def ask(self, *argv: str) -> str:
        if "job" in argv:
            return JOB.format(nodes=self.nodes)
        return "".join(NODE.format(n=n) for n in (1, 2, 3))


def found(nodes: str, **environment: str) -> list[tuple[str, int, int, list[int]]]:
    allocation = read_job(Told({}, nodes), 1, environment)
    return [(n.name, n.cpus, n.memory_mb, [device.index for device in n.devices]) for n in allocation.nodes]


def test_nodes_that_differ_have_groups_of_their_own() -> None:
    nodes = (
        "  Nodes=a100-[001-002] CPU_IDs=0-7,32-39 Mem=0 GRES=gpu:a100:3(IDX:0-1,3)"
        "  Nodes=a100-003 CPU_IDs=4 Mem=2048 GRES="
    )
    assert found(nodes) == [
        ("a100-001", 16, 512000, [0, 1, 3]),
        ("a100-002", 16, 512000, [0, 1, 3]),
        ("a100-003", 1, 2048, []),
    ]


def test_times_restarts_and_kinds_are_read() -> None:
    allocation = read_job(Told({}, "Nodes=a100-001 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:2)"), 1, {})
    assert (allocation.start, allocation.end, allocation.restarts, allocation.length) == (
        1795315408.0,
        1795316008.0,
        2,
        600.0,
    )
    assert allocation.pool().kinds == ("gpu:a100",)


def test_devices_that_are_only_counted_are_numbered() -> None:
    assert found("Nodes=a100-001 CPU_IDs=0 Mem=0 GRES=npu:ascend:8(CNT:8)")[0][3] == list(range(8))
    assert found("Nodes=a100-001 CPU_IDs=0 Mem=0 GRES=npu:ascend:4")[0][3] == list(range(4))
    assert found("Nodes=a100-001 CPU_IDs=0 Mem=0 GRES=npu:ascend(CNT:4)")[0][3] == list(range(4))
    assert found("Nodes=a100-001 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:0-1),npu(CNT:2)")[0][3] == [0, 0, 1, 1]


def test_where_slurm_hides_the_others_indices_count_from_zero() -> None:
    nodes = "Nodes=a100-001 CPU_IDs=0 Mem=0 GRES=gpu:a100:2(IDX:2-3)"
    assert found(nodes, CUDA_VISIBLE_DEVICES="0,1", SLURM_JOB_GPUS="2,3")[0][3] == [0, 1]
    assert found(nodes, CUDA_VISIBLE_DEVICES="2,3", SLURM_JOB_GPUS="2,3")[0][3] == [2, 3]


def test_an_answer_without_nodes_is_no_allocation() -> None:
    with pytest.raises(ClusterUnavailable, match="shows no nodes"):
        found("")


def test_a_step_inherits_none_of_the_batch_scripts_options() -> None:
    environment = {
        "SLURM_NTASKS": "9",
        "SLURM_JOB_ID": "1",
        "SLURM_CONF": "x",
        "PATH": "y",
        "SLURMD_NODENAME": "z",
    }
    assert own_environment(environment) == {"SLURM_JOB_ID": "1", "SLURM_CONF": "x", "PATH": "y"}


def test_npus_have_a_variable_of_their_own() -> None:
    assert visible("npu:ascend", [1, 2]) == {"ASCEND_RT_VISIBLE_DEVICES": "1,2"}
    assert visible("gpu:a100", []) == {"CUDA_VISIBLE_DEVICES": ""}


SMI = """#!/bin/sh
echo '0, NVIDIA A100-SXM4-80GB'
echo '1, NVIDIA A100-SXM4-80GB'
echo '2, NVIDIA H100 80GB HBM3'
"""


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return program


def test_nvidia_smi_tells_of_this_machine(smi: Path) -> None:
    (node,) = read_machine(None, {}).nodes
    assert node.devices[0] == Device(0, "gpu:nvidia-a100-sxm4-80gb")
    assert node.devices[2] == Device(2, "gpu:nvidia-h100-80gb-hbm3")
    assert node.cpus > 0


def test_of_its_devices_only_those_count_that_are_ours(smi: Path) -> None:
    (node,) = read_machine(None, {"CUDA_VISIBLE_DEVICES": "1,2"}).nodes
    assert [device.index for device in node.devices] == [1, 2]
    with pytest.raises(ConfigError, match="does not name devices by index"):
        read_machine(None, {"CUDA_VISIBLE_DEVICES": "GPU-ab12"})


def test_what_nvidia_smi_says_must_be_understood(smi: Path) -> None:
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\n")
    with pytest.raises(ConfigError, match="--devices N"):
        read_machine(None, {})


def test_without_nvidia_smi_the_number_is_to_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="--devices N"):
        read_machine(None, {})
    assert len(read_machine(3, {}).nodes[0].devices) == 3


def test_state_folder_is_named_absolutely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """srun and the processes of a step have other working directories than the command."""
    monkeypatch.chdir(tmp_path)
    assert Wishes(Path("st"), "srun", None, None).state == tmp_path / "st"
