"""``sacct -P`` dumps, as real clusters print them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirage.domain.errors import ConfigError, TraceError
from mirage.domain.job import ABSENT, UNLIMITED, JobState
from mirage.trace.readers import import_bytes
from mirage.trace.result import Strictness

if TYPE_CHECKING:
    from mirage.trace.result import ImportResult

HEADER = (
    "JobID|User|Account|Partition|QOS|JobName|Submit|Eligible|Start|End|TimelimitRaw|NNodes|"
    "AllocTRES|ReqTRES|State|ExitCode|Priority|Constraints|NodeList|Comment"
)
DUMP = "\n".join(
    [
        HEADER,
        "100|ann|phys|gpu|normal|train|2023-02-01T10:00:00|2023-02-01T10:00:00|2023-02-01T11:00:00|2023-02-02T11:00:05|1440|2|"
        "cpu=128,mem=1000G,node=2,billing=128,gres/gpu=6,gres/gpu:a100=6|cpu=2,mem=2G,node=2|TIMEOUT|0:0|1200|a100|c[01-02]|",
        "100.batch||phys|||batch|2023-02-01T11:00:00|Unknown|2023-02-01T11:00:00|2023-02-02T11:00:05||1|||CANCELLED|0:15||||",
        "101_3|bob|chem|gpu|normal|array|2023-02-01T10:05:00|2023-02-01T10:05:00|2023-02-01T10:05:01|2023-02-01T10:06:00|UNLIMITED|1|"
        "cpu=4,mem=8192M,node=1|cpu=4,mem=8192M,node=1|FAILED|1:0|1100||c03|",
        "101_[4-6%1]|bob|chem|gpu|normal|array|2023-02-01T10:05:00|Unknown|Unknown|Unknown|Partition_Limit|1|"
        "|cpu=4,mem=8192M,node=1,gres/npu=2|PENDING|0:0|1100||None assigned|",
        "102+0|cid|chem|gpu|normal|het|2023-02-01T10:07:00|2023-02-01T10:07:00|2023-02-01T10:08:00|Unknown|60|1|"
        "cpu=4,node=1|cpu=4,node=1|RUNNING|0:0|1100||c04|",
        "103|cid|chem|gpu|normal|gone|2023-02-01T10:09:00|2023-02-01T10:09:00|2023-02-01T10:30:00|2023-02-01T10:30:00|60|1|"
        "|cpu=4,node=1|CANCELLED by 1000|0:0|1100||None assigned|",
    ]
)


def read(text: str, strictness: Strictness = Strictness.STRICT, tz: str | None = None) -> ImportResult:
    return import_bytes(text.encode(), "dump.txt", None, strictness, tz)


def with_row(**changes: str) -> str:
    """The header and the first row with some cells changed."""
    cells = dict(zip(HEADER.split("|"), DUMP.split("\n")[1].split("|"), strict=True)) | changes
    return f"{HEADER}\n{'|'.join(cells.values())}\n"


def test_a_dump_becomes_a_table() -> None:
    result = read(DUMP)
    table = result.table
    assert table.job_id.tolist() == ["100", "101_3", "101_4", "101_5", "101_6", "102+0", "103"]
    assert (result.counts.rows, result.counts.steps, result.counts.jobs, result.counts.rejected) == (6, 1, 7, 0)
    assert table.submit[0] == 1_675_245_600  # date -u -d 2023-02-01T10:00:00 +%s
    assert table.wait[0] == 3600
    assert table.runtime[0] == 86_405
    assert table.limit.tolist() == [86_400, UNLIMITED, ABSENT, ABSENT, ABSENT, 3600, 3600]
    assert (table.user[0], table.account[0], table.partition[0], table.qos[0]) == ("ann", "phys", "gpu", "normal")
    assert (table.name[1], table.constraint[0]) == ("array", "a100")
    assert (table.node_list[0], table.node_list[2]) == ("c[01-02]", "")
    assert JobState(int(table.state[0])) is JobState.TIMEOUT
    assert table.priority[0] == 1200
    assert table.exit_code.tolist() == [0, 1, 0, 0, 0, 0, 0]


def test_what_was_allocated_goes_before_what_was_requested() -> None:
    table = read(DUMP).table
    assert table.gres_names == ("gpu:a100", "npu")
    assert table.gres.tolist() == [[6, 0], [0, 0], [0, 2], [0, 2], [0, 2], [0, 0], [0, 0]]
    assert table.cpus.tolist() == [128, 4, 4, 4, 4, 4, 4]
    assert table.nodes.tolist() == [2, 1, 1, 1, 1, 1, 1]
    assert table.memory_mb.tolist() == [1_024_000, 8192, 8192, 8192, 8192, ABSENT, ABSENT]


@pytest.mark.parametrize(
    ("fields", "cpus", "noted"),
    [
        ("NCPUS=64|ReqTRES=billing=1,cpu=1,mem=250G,node=1", 64, False),
        ("ReqTRES=billing=1,cpu=1,mem=250G,node=1|NCPUS=64|AllocTRES=cpu=32,node=1", 32, False),
        ("ReqCPUS=1|AllocCPUS=64", 64, False),
        ("ReqTRES=cpu=2,node=1", 2, True),
        ("ReqCPUS=2", 2, True),
        ("NCPUS=64", 64, False),
    ],
)
def test_cpus_are_those_that_a_job_got(fields: str, cpus: int, noted: bool) -> None:
    """With --exclusive they are all of its nodes, whatever it asked for."""
    names, values = zip(*(field.split("=", 1) for field in fields.split("|")), strict=True)
    head = ["JobID", "User", "Submit", "Start", "End", "TimelimitRaw", "State", "NNodes", *names]
    times = ["2026-01-05T00:00:00", "2026-01-05T00:00:00", "2026-01-05T01:00:00"]
    row = ["1", "ann", *times, "60", "COMPLETED", "1", *values]
    table = read(f"{'|'.join(head)}\n{'|'.join(row)}\n").table
    assert table.cpus.tolist() == [cpus]
    assert any("AllocTRES" in note for note in table.notes) is noted


def test_jobs_that_never_ran_have_no_start() -> None:
    table = read(DUMP).table
    assert table.start[6] == ABSENT
    assert table.end[6] == table.submit[6] + 21 * 60
    assert (table.start[2], table.end[2], table.eligible[2]) == (ABSENT, ABSENT, ABSENT)


def test_the_notes_say_what_was_changed() -> None:
    notes = "\n".join(read(DUMP).table.notes)
    for said in (
        "UTC",
        "expanded into their tasks: 1 (3 tasks",
        "heterogeneous jobs, as separate jobs: 1",
        "cancelled jobs with a start but no node, which count as never started: 1",
        "not used: Comment",
    ):
        assert said in notes


def test_times_are_read_in_the_zone_given() -> None:
    utc, berlin = read(DUMP).table, read(DUMP, tz="Europe/Berlin").table
    assert (utc.submit - berlin.submit).tolist() == [3600] * 7
    with pytest.raises(ConfigError, match="Middle/Earth"):
        read(DUMP, tz="Middle/Earth")


def test_epoch_seconds_offsets_and_any_order_of_fields() -> None:
    text = (
        "State|End|Start|Submit|JobID|Timelimit|ReqNodes|ReqMem|ReqCPUS|ReqGRES\n"
        "COMPLETED|1675249200|2023-02-01T12:00:00+01:00|1675245600|7|1-00:00:00|2|4Gc|8|gpu:v100:2\n"
    )
    table = read(text).table
    assert (table.submit[0], table.start[0], table.end[0]) == (1_675_245_600, 1_675_249_200, 1_675_249_200)
    assert (table.limit[0], table.nodes[0], table.cpus[0], table.memory_mb[0]) == (86_400, 2, 8, 32_768)
    assert (table.gres_names, table.gres.tolist()) == (("gpu:v100",), [[4]])  # --gres counts per node


def test_the_p_option_with_a_trailing_bar_and_joined_dumps() -> None:
    lines = [line + "|" for line in DUMP.split("\n")]
    result = read("\r\n".join([*lines, lines[0], "", lines[1]]))
    assert (result.counts.rows, result.counts.repeated) == (7, 1)
    assert result.table.job_id.tolist() == read(DUMP).table.job_id.tolist()


def test_overlapping_dumps_give_each_record_once_and_keep_requeued_jobs() -> None:
    head = "JobID|Submit|Start|End|State|Timelimit|NNodes|User|Partition|NCPUS"
    row = "{id}|2023-02-01T{submit}:00:00|2023-02-01T{start}:00:00|{end}|{state}|1-00:00:00|1|ann|p|4"
    early = [
        row.format(id=7, submit=10, start=11, end="2023-02-01T12:00:00", state="NODE_FAIL"),
        row.format(id=7, submit=12, start=13, end="Unknown", state="RUNNING"),
        row.format(id=8, submit=12, start=13, end="Unknown", state="RUNNING"),
    ]
    late = [row.format(id=7, submit=12, start=13, end="2023-02-01T15:00:00", state="COMPLETED")]
    for dumps in ((early, late), (late, early), (early, early, late)):
        table = read("\n".join([head, *(line for dump in dumps for line in (head, *dump))])).table
        jobs = sorted(zip(table.job_id.tolist(), (table.end - table.start).tolist(), strict=True))
        assert [job for job, _ in jobs] == ["7", "7", "8"]
        assert [span for _, span in jobs][:2] == [3_600, 7_200]


def test_resized_job_is_one_run_of_its_last_size() -> None:
    """The output of ``sacct -D`` of Slurm 22.05."""
    head = "JobID|Submit|Eligible|Start|End|State|Timelimit|NNodes|User|Partition|NCPUS"
    row = "1|2026-11-25T{submit}|2026-11-25T{submit}|2026-11-25T19:33:41|{end}|{state}|1-00:00:00|{nodes}|ann|p|4"
    first = row.format(submit="19:33:40", end="2026-11-25T19:33:49", state="RESIZING", nodes=3)
    second = row.format(submit="19:33:49", end="2026-11-25T19:34:00", state="RESIZING", nodes=2)
    for state, end in (("COMPLETED", "2026-11-25T19:34:07"), ("RUNNING", "Unknown")):
        last = row.format(submit="19:34:00", end=end, state=state, nodes=1)
        result = read("\n".join([head, first, second, last]))
        table = result.table
        assert (len(table), result.counts.repeated, int(table.nodes[0])) == (1, 2, 1)
        assert int(table.wait[0]) == 1
        assert JobState(int(table.state[0])).name == state
        assert int(table.runtime[0]) == (26 if state == "COMPLETED" else 0)
    with pytest.raises(TraceError, match="before the job was submitted"):
        read("\n".join([head, last]))


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"Start": "2023-02-01T09:00:00"}, "Start", "3600 s before the job was submitted"),
        ({"End": "2023-02-01T10:59:00"}, "End", "60 s before the start"),
        ({"Submit": "Unknown"}, "Submit", "missing"),
        ({"Start": "yesterday"}, "Start", "expected a time"),
        ({"Start": "2023-02-30T09:00:00"}, "Start", "expected a time"),
        ({"State": "DREAMING"}, "State", "not a job state"),
        ({"State": "PENDING"}, "Start", "PENDING"),
        ({"End": "Unknown"}, "End", "missing, but the job is TIMEOUT"),
        ({"NNodes": "-2"}, "NNodes", "negative"),
        ({"NNodes": "two"}, "NNodes", "whole number"),
        ({"TimelimitRaw": "soon"}, "Timelimit", "expected a time"),
        ({"TimelimitRaw": "0"}, "Timelimit", "no time at all"),
        ({"JobID": "abc"}, "JobID", "not a job id"),
        ({"AllocTRES": "cpu=many"}, "AllocTRES", "amount"),
        ({"AllocTRES": "cpu=99999999999"}, "AllocTRES", "out of range"),
        ({"ExitCode": "boom"}, "ExitCode", "exit code"),
        ({"Priority": "high"}, "Priority", "whole number"),
    ],
)
def test_a_bad_row_names_its_place(change: dict[str, str], field: str, problem: str) -> None:
    with pytest.raises(TraceError, match=problem) as caught:
        read(with_row(**change))
    assert (caught.value.path, caught.value.line, caught.value.field) == ("dump.txt", 2, field)


def test_lenient_leaves_bad_rows_out_and_counts_them() -> None:
    lines = DUMP.split("\n")
    bad = with_row(State="DREAMING").split("\n")[1]
    result = read("\n".join([*lines[:3], "1|2|3", bad, *lines[3:]]), Strictness.LENIENT)
    assert len(result.table) == 7
    assert [(r.line, r.field) for r in result.rejected] == [(4, ""), (5, "State")]
    assert result.counts.rejected == 2
    assert result.counts.rows == 8


def test_strict_stops_at_the_first_bad_line() -> None:
    lines = DUMP.split("\n")
    with pytest.raises(TraceError, match="3 fields where the header has 20") as caught:
        read("\n".join([*lines[:2], "1|2|3", with_row(State="X").split("\n")[1]]))
    assert caught.value.line == 3


def test_missing_fields_are_named() -> None:
    with pytest.raises(TraceError, match="TimelimitRaw or Timelimit: the dump does not have this field"):
        read("JobID|Submit|Start|End|State|NNodes\n")


def test_a_dump_without_jobs_is_an_empty_table() -> None:
    assert len(read(HEADER + "\n").table) == 0
