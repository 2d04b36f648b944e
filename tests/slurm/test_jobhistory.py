"""Accounting's whole history, on what real Slurms of each version printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, JobState
from mirage.slurm.accounting import history_arguments, read_history
from mirage.slurm.tres import memory_mb

ASSETS = Path(__file__).resolve().parents[1] / "assets"
VERSIONS = sorted(path.name for path in ASSETS.iterdir() if (path / "sacct.mirage-history.epoch.txt").exists())
MARK = "^^0123456789ab"
CELL = "\x1f"
SHAPE = next(a for a in history_arguments(0, 1) if a.startswith("--format=")).partition("=")[2]
FIELDS = [field.partition("%")[0] for field in SHAPE.split(",")]
TIMES = ("Submit", "Eligible", "Start", "End")


def answer(version: str) -> tuple[str, str]:
    """The output of Mirage's query, and its mark."""
    mark = json.loads((ASSETS / version / "index.json").read_text())["mark"]
    return text_of(version, "sacct.mirage-history.epoch.txt"), mark


def text_of(version: str, name: str) -> str:
    return (ASSETS / version / name).read_bytes().decode("utf-8", "surrogateescape")


def recorded(version: str) -> list[dict[str, str]]:
    """Every run of every job, each field by its name, from a separate query a moment before."""
    cell = json.loads((ASSETS / version / "index.json").read_text())["cell"]
    text = text_of(version, "sacct.history.epoch.txt")
    fields = text.partition("\n")[0].split(cell)[:-1]
    cells = text.split(cell)
    rows = [cells[k : k + len(fields)] for k in range(len(fields), len(cells) - 1, len(fields))]
    return [dict(zip(fields, [row[0].lstrip("\n"), *row[1:]], strict=True)) for row in rows]


def printed(rows: list[dict[str, str]]) -> str:
    """Rows as Mirage's query would return them."""

    def cell(row: dict[str, str], field: str) -> str:
        return f"{row[field]}{MARK}" if field in TIMES and row[field] != "Unknown" else row[field]

    lines = [FIELDS, *([cell(row, field) for field in FIELDS] for row in rows)]
    return "".join("".join(f"{cell}{CELL}" for cell in line) + "\n" for line in lines)


def test_there_is_something_to_test_on() -> None:
    assert {"22.05.8", "24.11.5", "26.05.5"} <= set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_run_is_there_as_it_was_printed(version: str) -> None:
    rows = recorded(version)
    table, left_out = read_history(*answer(version))
    assert left_out == 0
    wanted = [row for row in rows if row["State"] != "PENDING"]
    assert sorted(table.job_id.tolist()) == sorted(row["JobIDRaw"] for row in wanted)
    told = {(row["JobIDRaw"], int(row["Submit"])): row for row in wanted}
    for k in range(len(table)):
        row = told[str(table.job_id[k]), int(table.submit[k])]
        assert table.user[k] == row["User"]
        assert table.account[k] == row["Account"]
        assert table.name[k] == row["JobName"]
        assert table.partition[k] == row["Partition"]
        assert table.nodes[k] == int(row["NNodes"])
        ran = row["NodeList"] != "None assigned"
        assert table.start[k] == (int(row["Start"]) if ran else ABSENT)
        assert table.end[k] == (ABSENT if row["End"] == "Unknown" else int(row["End"]))
        amounts = dict(item.split("=") for item in (row["AllocTRES"] or row["ReqTRES"]).split(","))
        assert table.cpus[k] == int(amounts["cpu"])
        assert table.memory_mb[k] == (memory_mb(amounts["mem"]) if "mem" in amounts else ABSENT)
        gpus = sum(int(table.gres[k, g]) for g, name in enumerate(table.gres_names) if name.startswith("gpu"))
        assert gpus == int(amounts.get("gres/gpu", 0))


def row(**cells: str) -> dict[str, str]:
    usual = {
        "JobIDRaw": "7",
        "Submit": "100",
        "Eligible": "100",
        "Start": "200",
        "End": "300",
        "State": "COMPLETED",
        "TimelimitRaw": "60",
        "NNodes": "1",
        "AllocTRES": "cpu=4,node=1",
        "NodeList": "c1",
    }
    return dict.fromkeys(FIELDS, "") | usual | cells


def test_what_is_not_understood_is_left_out_and_counted() -> None:
    odd = [row(JobIDRaw="8", Submit="soon"), row(JobIDRaw="9", AllocTRES="cpu"), row(JobIDRaw="10", State="LOST")]
    table, left_out = read_history(printed([row(), *odd]), MARK)
    assert table.job_id.tolist() == ["7"]
    assert left_out == 3


def test_pending_jobs_are_for_the_queue_to_tell() -> None:
    pending = row(State="PENDING", NodeList="None assigned", Start="400", End="Unknown", AllocTRES="")
    assert len(read_history(printed([pending]), MARK)[0]) == 0


def test_a_job_cancelled_before_it_ran_has_no_start() -> None:
    text = printed([row(State="CANCELLED by 1000", NodeList="None assigned", Start="300", AllocTRES="")])
    table, _ = read_history(text, MARK)
    assert (table.start[0], table.end[0], table.state[0]) == (ABSENT, 300, JobState.CANCELLED)


def test_records_whose_times_contradict_each_other_are_left_out() -> None:
    table, _ = read_history(printed([row(Start="50"), row(JobIDRaw="8", End="150")]), MARK)
    assert len(table) == 0


def test_jobs_stand_in_order_of_submission() -> None:
    table, _ = read_history(printed([row(JobIDRaw="8", Submit="90"), row(), row(JobIDRaw="9", Submit="80")]), MARK)
    assert table.job_id.tolist() == ["9", "8", "7"]


def test_no_jobs_are_an_empty_table_and_half_an_answer_is_none() -> None:
    assert len(read_history(printed([]), MARK)[0]) == 0
    with pytest.raises(BadSpelling, match="cut off"):
        read_history(printed([row()])[:-5], MARK)
