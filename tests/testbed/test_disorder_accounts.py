"""Accounting's rows as the rounds of failures read them."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from disorder.accounts import Accounting

from mirage.domain.job import JobId, JobState
from mirage.domain.link import Link

NODE = "cpu-001"


class Told:
    """Stands for a testbed whose ``sacct`` says this, all but the last ``kept`` rows of it at first."""

    def __init__(self, *rows: str, kept: int = 0) -> None:
        self.rows, self.kept = rows, kept

    def run(self, user: str, argv: list[str], **_: object) -> str:
        del user
        if argv == ["sdiag"]:
            kept, self.kept = self.kept, 0
            return f"Agent queue size: 0\nAgent count: 0\nDBD Agent queue size: {kept}\n"
        told = self.rows[: len(self.rows) - self.kept]
        latest = {row.split("|")[0]: row for row in told}
        shown = told if "--duplicates" in argv else latest.values()
        return "".join(f"{row}\n" for row in shown)


def read(*rows: str, kept: int = 0, kills: tuple[float, ...] = ()) -> Accounting:
    accounting = Accounting(Told(*rows, kept=kept), ["c1"], silences=(250.0,), kills=kills)  # type: ignore[arg-type]
    accounting.read(set())
    return accounting


class Late(Told):
    """``sacct`` shows the job after some calls only, and ``sdiag`` does not say that it is missing."""

    asked = 0

    def run(self, user: str, argv: list[str], **more: object) -> str:
        self.asked += argv != ["sdiag"]
        return super().run(user, argv, **more) if self.asked > 3 or argv == ["sdiag"] else ""


def test_job_that_accounting_learns_late_is_waited_for() -> None:
    row = "7|alice|CANCELLED by 1001|100|None|200|0:0|None assigned|mirage:c1:1"
    accounting = Accounting(Late(row), ["c1"], silences=())  # type: ignore[arg-type]
    accounting.read({JobId(7)})
    assert [job.job_id for job in accounting.jobs["mirage:c1:1"]] == [7]


def test_two_jobs_of_one_link_are_told() -> None:
    row = "{}|alice|TIMEOUT|100|110|200|0:0|cpu-001|mirage:c1:1"
    assert list(read(row.format(7)).doubles()) == []
    assert list(read(row.format(7), row.format(8)).doubles()) == ["two jobs for one link: [7, 8] are mirage:c1:1"]


def test_jobs_of_others_are_none_of_ours() -> None:
    others = ("9|bob|TIMEOUT|100|110|200|0:0|cpu-001|", "10|bob|TIMEOUT|1|2|3|0:0|cpu-001|mirage:c2:1")
    assert read(*others).jobs == {}


def test_a_job_that_was_requeued_and_then_cancelled_has_run() -> None:
    accounting = read(
        f"7|alice|REQUEUED|100|110|120|0:0|{NODE}|mirage:c1:1",
        "7|alice|CANCELLED by 1001|100|None|200|0:0|None assigned|mirage:c1:1",
        "8|alice|CANCELLED by 1001|100|None|200|0:0|None assigned|mirage:c1:2",
    )
    (first,), (second,) = accounting.jobs["mirage:c1:1"], accounting.jobs["mirage:c1:2"]
    assert (accounting.times_run(first), accounting.times_run(second)) == (1, 0)
    assert accounting.in_the_dark(first), "accounting was asked without success after its end"


def test_times_run_requeued_job_counts_each_run() -> None:
    accounting = read(
        f"7|alice|REQUEUED|100|110|120|0:0|{NODE}|mirage:c1:1",
        f"7|alice|NODE_FAIL|120|130|140|0:0|{NODE}|mirage:c1:1",
        f"7|alice|TIMEOUT|140|150|200|0:0|{NODE}|mirage:c1:1",
    )
    assert [accounting.times_run(job) for job in accounting.jobs["mirage:c1:1"]] == [3]


def test_a_start_that_slurmdbd_has_lost_is_no_fault_of_anybody_elses() -> None:
    accounting = read("7|alice|TIMEOUT|100|None|300|0:0|None assigned|mirage:c1:1")
    (job,) = accounting.jobs["mirage:c1:1"]
    assert accounting.times_run(job) == 1
    assert accounting.in_the_dark(job)


def test_what_slurmctld_still_keeps_for_slurmdbd_is_waited_for() -> None:
    """A node fails, its job is requeued and cancelled; until accounting knows, it says that the node failed."""
    accounting = read(
        f"7|alice|NODE_FAIL|100|110|120|0:0|{NODE}|mirage:c1:1",
        "7|alice|CANCELLED by 1001|120|None|200|0:0|None assigned|mirage:c1:1",
        kept=1,
    )
    (job,) = accounting.jobs["mirage:c1:1"]
    assert (job.state.name, job.end) == ("CANCELLED", 200)


@pytest.mark.parametrize(("killed", "excused"), [(99.0, False), (200.0, True), (301.0, False)])
def test_took_back_end_before_kill_of_slurmctld(killed: float, excused: bool) -> None:
    accounting = read("7|alice|FAILED|100|110|300|0:9|cpu-001|mirage:c1:1", kills=(killed,))
    (job,) = accounting.jobs["mirage:c1:1"]
    seen = Link(1, "mirage:c1:1", 90, start=110, end=190, job_state=JobState.TIMEOUT)
    assert accounting.took_back(seen, job) is excused


@pytest.mark.parametrize(("state", "excused"), [("NODE_FAIL", True), ("TIMEOUT", False)])
def test_took_back_run_before_cancelled_wait(state: str, excused: bool) -> None:
    accounting = read(f"7|alice|{state}|100|110|120|0:0|{NODE}|mirage:c1:1")
    (job,) = accounting.jobs["mirage:c1:1"]
    waited = Link(1, "mirage:c1:1", 90, end=190, job_state=JobState.CANCELLED)
    assert accounting.took_back(waited, job) is excused
    assert not accounting.took_back(replace(waited, start=110), job)


@pytest.mark.parametrize(("killed", "start", "lacks"), [(95.0, -1, True), (89.0, -1, False), (95.0, 1, False)])
def test_may_lack_job_that_killed_slurmctld_had_not_saved(killed: float, start: int, lacks: bool) -> None:
    accounting = read(kills=(killed,))
    forgotten = Link(1, "mirage:c1:1", 90, submit=90, start=start, job_state=JobState.PENDING)
    assert accounting.may_lack(forgotten) is lacks
