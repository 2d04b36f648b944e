"""Stands on PATH as srun, squeue, scancel, scontrol and sinfo of one job whose nodes are all this machine.

Its directory (``FAKE_JOB``) holds the job's steps, and files by which a test breaks something:

- ``lies``: srun exits with 0 and says nothing, however its step ended;
- ``refuse``: the number of further steps that are not created;
- ``vanish``: the number of further steps that end before they begin, where srun exits with 0;
- ``slow``: seconds until a step is created;
- ``down``: nodes that have failed; steps there end as Slurm ends them;
- ``state``: what squeue says of the job; ``gone``: the controller does not know it;
- ``mute``: no command gets an answer.
"""
# ruff: noqa: T201 - what commands are for

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_JOB"])
NODES = ("n1", "n2")


def told(name: str) -> str:
    with contextlib.suppress(OSError):
        return (FOLDER / name).read_text().strip()
    return ""


def srun(arguments: list[str]) -> int:
    options, command = split(arguments)
    if options["job-name"] == "mirage.topology":
        return 0  # no node has an nvidia-smi
    places = options["nodelist"].split(",")
    assert options["distribution"] == "arbitrary"
    assert int(options["ntasks"]) == len(places)
    time.sleep(float(told("slow") or 0))
    left = int(told("refuse") or 0)
    if left:
        (FOLDER / "refuse").write_text(str(left - 1))
    if left or not set(places) <= set(NODES):
        print(
            "srun: error: Unable to create step for job 7: Requested node configuration is not available",
            file=sys.stderr,
        )
        return 1
    vanish = int(told("vanish") or 0)
    if vanish:
        (FOLDER / "vanish").write_text(str(vanish - 1))
        return 0
    return watch(*start(options, places, command))


def split(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    count = next(i for i, word in enumerate(arguments) if not word.startswith("--"))
    pairs = [word[2:].partition("=") for word in arguments[:count]]
    return {name: value for name, _, value in pairs}, arguments[count:]


def start(
    options: dict[str, str], places: list[str], command: list[str]
) -> tuple[Path, list[str], list[subprocess.Popen[bytes]]]:
    """The ranks, each in a separate session: they survive the end of their srun."""
    ranks = []
    with open(options["output"].replace("%%", "%"), "ab") as sink:  # noqa: PTH123
        for rank, node in enumerate(places):
            own = {
                "SLURMD_NODENAME": node, "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(len(places)),
                "SLURM_LOCALID": str(places[:rank].count(node)), "CUDA_VISIBLE_DEVICES": "0,1,2,3",
            }  # fmt: skip
            ranks.append(subprocess.Popen(command, env=os.environ | own, stdout=sink, start_new_session=True))
    step = FOLDER / "steps" / str(time.monotonic_ns())
    step.write_text(
        json.dumps({"name": options["job-name"], "nodes": places, "pids": [rank.pid for rank in ranks]})
    )
    return step, places, ranks


def watch(step: Path, places: list[str], ranks: list[subprocess.Popen[bytes]]) -> int:
    while any(rank.poll() is None for rank in ranks):
        lost = set(told("down").split()) & set(places)
        if lost:
            for rank in ranks:
                os.killpg(rank.pid, signal.SIGKILL)
            print(f"srun: error: Node failure on {lost.pop()}", file=sys.stderr)
            if set(told("down").split()) >= set(places):
                step.write_text(json.dumps(json.loads(step.read_text()) | {"stays": True}))
            else:
                step.unlink()
            return 0  # so does Slurm 22.05, and lists indefinitely a step of which no node is left
        time.sleep(0.02)
    step.unlink()
    codes = [rank.returncode if rank.returncode >= 0 else 128 - rank.returncode for rank in ranks]
    for code in codes:
        if code:
            print(f"srun: error: n1: task 0: Exited with exit code {code}", file=sys.stderr)
    return 0 if told("lies") else max(codes)


def steps() -> dict[str, dict[str, object]]:
    found = {}
    for path in sorted((FOLDER / "steps").iterdir()):
        with contextlib.suppress(OSError, ValueError):
            step = json.loads(path.read_text())
            if "stays" in step or any(alive(pid) for pid in step["pids"]):
                found[f"7.{path.name}"] = step
    return found


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def squeue(arguments: list[str]) -> int:
    if "--steps" in arguments:
        for step, content in steps().items():
            print(f"{step}|{','.join(content['nodes'])}|{content['name']}")  # type: ignore[arg-type]
        print("7.batch|n1|batch")
    elif told("gone"):
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    else:
        print(told("state") or "RUNNING")
    return 0


def scancel(arguments: list[str]) -> int:
    name = arguments[0].partition("=")[2]
    for pid in steps().get(arguments[1], {}).get("pids", ()):  # type: ignore[attr-defined]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.Signals[f"SIG{name}"])
    return 0


def scontrol(arguments: list[str]) -> int:
    if "job" in arguments:
        end = told("end") or "Unknown"
        print(
            f"JobId=7 JobState=RUNNING Restarts=0 StartTime=1 EndTime={end} NodeList=n[1-2]"
            " Nodes=n[1-2] CPU_IDs=0-15 Mem=0 GRES=gpu:a100:4(IDX:0-3) MinCPUsNode=1"
        )
    else:
        print("\n".join(f"NodeName={name} RealMemory=1000" for name in NODES))
    return 0


def sinfo(arguments: list[str]) -> int:
    down = told("down").split()
    print("\n".join(f"{name}|{'down*' if name in down else 'mixed'}" for name in NODES))
    return 0


if __name__ == "__main__":
    program = Path(sys.argv[0]).name
    if (FOLDER / "mute").exists():
        print(f"{program}: error: Unable to contact slurm controller (connect failure)", file=sys.stderr)
        sys.exit(1)
    sys.exit(
        {"srun": srun, "squeue": squeue, "scancel": scancel, "scontrol": scontrol, "sinfo": sinfo}[program](
            sys.argv[1:]
        )
    )
