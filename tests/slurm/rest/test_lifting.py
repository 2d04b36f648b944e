"""Lifting: one job in any version's format is one job; an unknown format is reported."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.errors import BadSpelling
from mirage.domain.job import UNLIMITED, JobState
from mirage.slurm.rest.queue import read_queue
from mirage.slurm.rest.versions import KNOWN, NEWEST, OLDEST, Kind, lift

TIMES = ("submit_time", "eligible_time", "start_time", "end_time")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def numbered(value: int | None, *, infinite: bool = False) -> dict[str, Any]:
    return {"set": value is not None or infinite, "infinite": infinite, "number": value or 0}


def spelled(version: int, job: dict[str, Any]) -> dict[str, Any]:
    """The job as slurmrestd's sources write it in this version (openapi/v0.0.36-38, data_parser/v0.0.39-46)."""
    plain = version <= 38
    number = (lambda value: value) if plain else numbered
    instant = (lambda value: value) if version <= 39 else numbered
    code = job["exit_code"]
    status = code - 128 if code > 128 else code << 8
    new_exit = {
        "status": ["ERROR"],
        "return_code": numbered(None if code > 128 else code),
        "signal": {"id": numbered(code - 128 if code > 128 else None), "name": ""},
    }
    unlimited = None if plain else numbered(None, infinite=True)
    return {
        "job_id": job["job_id"],
        "name": "n",
        "user_name": "alice",
        "user_id": 7,
        "partition": "p",
        "qos": "q",
        "node_count": number(job["nodes"]),
        "time_limit": unlimited if job["limit"] == UNLIMITED else number(job["limit"] // 60),
        "submit_time": instant(job["submit"]),
        "eligible_time": instant(job["submit"]),
        "start_time": instant(job["start"]),
        "end_time": instant(job["end"]),
        "priority": number(3),
        "nice": None if plain and not job["nice"] else job["nice"],
        "comment": "mirage:c:1",
        "nodes": "n1",
        "exit_code": status if plain else numbered(status) if version == 39 else new_exit,
        "job_state": job["state"].name if version <= 39 else [job["state"].name],
        "state_reason": "None",
        "array_task_id": None if plain else numbered(None),
        "array_task_string": "",
    }


instants = st.integers(1, 1 << 40)
jobs = st.fixed_dictionaries(
    {
        "job_id": st.integers(1, 1 << 30),
        "nodes": st.integers(1, 10_000),
        "limit": st.integers(1, 400_000).map(lambda minutes: minutes * 60) | st.just(UNLIMITED),
        "submit": instants,
        "start": instants,
        "end": instants,
        "nice": st.integers(-10_000, 10_000),
        "exit_code": st.integers(0, 127) | st.integers(129, 160),
        "state": st.sampled_from([state for state in JobState if state.finished]),
    }
)


@given(jobs)
def test_a_job_is_the_same_in_every_version(job: dict[str, Any]) -> None:
    for version in KNOWN:
        record = lift(Kind.JOB, version, spelled(version, job))
        (found,) = read_queue([record], dict, str).ours
        read = found.job
        assert (read.job_id, read.nodes, read.state, read.nice) == (
            job["job_id"], job["nodes"], job["state"], job["nice"],
        )  # fmt: skip
        assert (read.submit, read.start, read.end) == (job["submit"], job["start"], job["end"])
        assert (read.limit, read.exit_code) == (min(job["limit"], UNLIMITED), job["exit_code"])


@given(
    st.sampled_from([*Kind]), st.integers(OLDEST, NEWEST), st.dictionaries(st.text(max_size=8), JSON), st.data()
)
def test_anything_else_is_a_bad_spelling(
    kind: Kind, version: int, record: dict[str, Any], data: st.DataObject
) -> None:
    for name in data.draw(st.lists(st.sampled_from(kind.value.split()))):
        record[name] = data.draw(JSON)
    try:
        lifted = lift(kind, version, record)
        if kind is Kind.JOB:
            read_queue([lifted], dict, str)
    except BadSpelling:
        pass


@pytest.mark.parametrize("version", [36, 37, 38, 39])
@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("COMPLETING", ["RUNNING", "COMPLETING"]),
        ("CONFIGURING", ["RUNNING", "CONFIGURING"]),
        ("REQUEUE_HOLD", ["PENDING"]),
        ("SPECIAL_EXIT", ["PENDING"]),
        ("REQUEUED", ["PENDING"]),
        ("OUT_OF_MEMORY", ["OUT_OF_MEMORY"]),
    ],
)
def test_a_flag_in_place_of_a_state(version: int, word: str, words: list[str]) -> None:
    job = {"nice": 0, "exit_code": 0, "job_state": word, **dict.fromkeys(TIMES, 0)}
    assert lift(Kind.JOB, version, job)["job_state"] == words


def test_accountings_start_before_38_is_counted_back_from_the_end() -> None:
    past = {
        "state": {"current": "FAILED"},
        "exit_code": {"status": "SUCCESS", "return_code": 0},
        "time": {"start": 100, "end": 500, "elapsed": 300, "suspended": 20, "limit": None},
    }
    assert lift(Kind.PAST_JOB, 37, past)["time"]["start"] == 180
    assert lift(Kind.PAST_JOB, 38, past)["time"]["start"] == 100
