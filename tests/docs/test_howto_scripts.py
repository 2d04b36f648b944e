"""The training scripts of the how-to pages save when they are warned, and continue with the next step."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT = 300.0
TORCHRUN = f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
USR1 = 1 << (signal.SIGUSR1 - 1)


class Training:
    """A directory with an example and the programs that it needs."""

    def __init__(self, folder: Path, examples: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        torchrun = folder / "bin" / "torchrun"
        torchrun.write_text(TORCHRUN)
        torchrun.chmod(0o755)
        for name in names:
            (folder / name).write_bytes((examples / name).read_bytes())
        self.environment = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as output:
            surroundings = self.environment | environment
            return subprocess.Popen(command, cwd=self.folder, env=surroundings, stdout=output, stderr=output)

    def output(self) -> str:
        return (self.folder / "output").read_text()

    def wait_until(self, holds: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not holds():
            assert process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def run(self, *command: str, **environment: str) -> None:
        assert self.start(*command, **environment).wait(TIMEOUT) == 0, self.output()


def handles_usr1(process: subprocess.Popen[bytes]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = re.search(r"^SigCgt:\t(\w+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) & USR1)


def test_ddp_result_equals_uninterrupted_run(tmp_path: Path, root: Path) -> None:
    torch = pytest.importorskip("torch")
    command = ("bash", "torchrun.sh", "--standalone", "--nproc-per-node=2", "ddp.py")
    results = []
    for name, warned in (("whole", False), ("parts", True)):
        folder = tmp_path / name
        folder.mkdir()
        training = Training(folder, root / "docs/examples", ("torchrun.sh", "ddp.py"))
        log = folder / "steps.log"
        if warned:
            first = training.start(*command, STEPS="1000", SECONDS_A_STEP="0.1", MIRAGE_LINK="1")
            training.wait_until(lambda log=log: log.exists() and "step 3" in log.read_text(), first)
            first.send_signal(signal.SIGUSR1)
            assert first.wait(TIMEOUT) == 0, training.output()
        training.run(*command, STEPS="40", MIRAGE_LINK="2")
        steps = re.findall(r"^link \S+ step (\d+)$", log.read_text(), re.MULTILINE)
        assert steps == [str(step) for step in range(1, 41)]
        results.append(torch.load(folder / "checkpoint.pt")["model"])
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])


@pytest.mark.parametrize(
    ("module", "script", "steps"), [("lightning", "lightning_train.py", 256), ("transformers", "hf_train.py", 20)]
)
def test_framework_saves_at_warning(tmp_path: Path, root: Path, module: str, script: str, steps: int) -> None:
    pytest.importorskip(module)
    training = Training(tmp_path, root / "docs/examples", (script,))
    first = training.start(sys.executable, script)
    training.wait_until(lambda: handles_usr1(first), first)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(TIMEOUT) == 0, training.output()
    checkpoints = tmp_path / "checkpoints"
    if module == "lightning":
        assert [path.name for path in checkpoints.iterdir()] == ["warned.ckpt"]
        training.run(sys.executable, script, EPOCHS="2")
        assert "Restored all states" in training.output()
    else:
        assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-1"]
        training.run(sys.executable, script, STEPS=str(steps))
        state = json.loads((checkpoints / f"checkpoint-{steps}" / "trainer_state.json").read_text())
        assert state["global_step"] == steps
