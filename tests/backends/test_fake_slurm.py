"""The fake commands print what real ones have been recorded to print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_slurm.fake import FakeSlurm

from mirage.backends.execution import CommandRunner

if TYPE_CHECKING:
    from collections.abc import Iterator

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "22.05.8"
RECORDINGS: dict[str, Any] = json.loads((ASSETS / "index.json").read_text())["recordings"]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    with FakeSlurm(tmp_path / "slurm") as running:
        yield running


def ask(
    slurm: FakeSlurm, *argv: str, user: str = "alice", script: str = "", **environment: str
) -> tuple[str, str, int]:
    commands = CommandRunner(slurm.environment(user) | {"SLURM_TIME_FORMAT": "%s"} | environment)
    answer = commands.run(argv, stdin=script.encode())
    return answer.out, answer.err, answer.status


def submit(slurm: FakeSlurm, *options: str) -> tuple[str, str, int]:
    return ask(slurm, "sbatch", *options, script="#!/bin/sh\n")


@pytest.mark.parametrize("name", ["squeue.mirage.epoch.txt", "sinfo.mirage.txt", "sacct.mirage-fate.epoch.txt"])
def test_headings_are_the_real_ones(slurm: FakeSlurm, name: str) -> None:
    argv = [word.replace("-S", "--starttime=now-90days") for word in RECORDINGS[name]["argv"]]
    argv = [word.replace("-E", "--endtime=now+90days") for word in argv if not word.startswith("now")]
    real = (ASSETS / name).read_text(encoding="utf-8", errors="surrogateescape").partition("\n")[0]
    assert ask(slurm, *argv, **RECORDINGS[name]["environment"])[0].partition("\n")[0] == real


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("limit", ["--time=3-00:00:00"]),
        ("nodes", ["--nodes=99"]),
        ("partition", ["--partition=nowhere"]),
        ("reservation", ["--reservation=nowhere"]),
    ],
)
def test_refusals_are_the_real_ones(slurm: FakeSlurm, name: str, options: list[str]) -> None:
    recorded = RECORDINGS[f"refused.{name}.txt"]
    _, said, status = submit(slurm, *options)
    assert said == recorded["stderr"].splitlines(keepends=True)[-1]
    assert status == recorded["exit"]


def test_acts_on_jobs_that_have_ended_or_never_were_are_answered_as_really(slurm: FakeSlurm) -> None:
    job_id = submit(slurm, "--parsable", "--hold")[0].strip()
    ask(slurm, "scancel", job_id)

    def recorded(name: str) -> tuple[str, int]:
        said = re.sub(r"job( id)? (1|40)\b", rf"job\1 {job_id}", RECORDINGS[name]["stderr"])
        return said.splitlines(keepends=True)[0], RECORDINGS[name]["exit"]

    assert ask(slurm, "scontrol", "update", f"JobId={job_id}", "Nice=5")[1:] == recorded("ended-job.update.txt")
    assert ask(slurm, "scontrol", "hold", job_id)[1:] == recorded("ended-job.hold.txt")
    assert ask(slurm, "scontrol", "hold", "999999")[1:] == recorded("unknown-job.hold.txt")
    assert ask(slurm, "squeue", "--jobs=999999", "--format=%T")[1:] == recorded("unknown-job.squeue.txt")
    foreign = ask(slurm, "scancel", "--verbose", job_id, user="bob")[1].splitlines(keepends=True)[-1]
    assert foreign == recorded("foreign-job.scancel.txt")[0]


def test_submissions_are_answered_as_really(slurm: FakeSlurm) -> None:
    assert re.fullmatch(r"\d+\n", submit(slurm, "--parsable")[0])
    assert re.fullmatch(r"Submitted batch job \d+\n", submit(slurm)[0])
    told = submit(slurm, "--test-only", "--partition=v100")[1]
    shape = r"sbatch: Job \d+ to start at \d+ using \d+ processors on nodes \S+ in partition v100\n"
    assert re.fullmatch(shape, told)
    assert re.fullmatch(shape, RECORDINGS["test-only.epoch.txt"]["stderr"])
