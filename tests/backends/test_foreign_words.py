"""Words of other users' jobs are any bytes: no answer of Slurm's becomes unreadable by them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from backends.rest_world import EMPTY, cluster, fake, recorded, token

from mirage.backends.execution import CommandRunner
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.job import JobId

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable

    from backends.fake_slurmrestd import FakeSlurmrestd

    from mirage.backends.rest import RestCluster

__all__ = ["cluster", "fake", "token"]

JOBS, NODES, PAST = "/slurm/v0.0.38/jobs", "/slurm/v0.0.38/nodes", "/slurmdb/v0.0.38/jobs"
WORDS = [
    pytest.param(b"x\xff", id="no-utf8"),
    pytest.param(b"\xc3", id="half-a-character"),
    pytest.param(b"\xed\xa0\x80", id="surrogate"),
    pytest.param(b"\\ud800", id="escaped-surrogate"),
    pytest.param(b"\\udcff\\ud83d", id="escaped-halves"),
    pytest.param(b"a\\u0000b\x00", id="nul"),
    pytest.param(b"\x01\x1b[2J\x1e\x1f\n\r\x7f", id="control"),
    pytest.param("\ufeff\u202e\U0010ffff".encode(), id="odd"),
    pytest.param(b"x" * (1 << 20), id="huge"),
]


def spoiled(document: Any, words: bytes) -> bytes:
    """Every WORDS of the document are these bytes."""
    return json.dumps(document).encode().replace(b"WORDS", words)


def first_pending(jobs: Any) -> Any:
    return next(job for job in jobs["jobs"] if job["job_state"] == "PENDING" and not job["array_task_string"])


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("field", ["name", "comment", "account", "user_name", "partition", "state_reason", "qos"])
def test_words_of_a_foreign_job_harm_no_snapshot(
    fake: FakeSlurmrestd, cluster: RestCluster, words: bytes, field: str
) -> None:
    jobs = recorded("jobs")
    fake.answers[JOBS] = jobs
    before = cluster.snapshot()
    first_pending(jobs)[field] = "WORDS"
    fake.answers[JOBS] = spoiled(jobs, words)
    after = cluster.snapshot()
    assert (len(after.pending), len(after.running)) == (len(before.pending), len(before.running))
    assert after.links == before.links
    for text in (*after.users, *after.partition_names, *after.qos_names):
        text.encode("utf-8", "surrogateescape")
        assert "\0" not in text


@pytest.mark.parametrize("words", WORDS)
def test_words_of_our_own_job_are_text(fake: FakeSlurmrestd, cluster: RestCluster, words: bytes) -> None:
    jobs = recorded("jobs")
    ours = next(job for job in jobs["jobs"] if job["comment"].startswith("mirage:"))
    ours["name"] = "WORDS"
    fake.answers[JOBS] = spoiled(jobs, words)
    job = cluster.snapshot().links[ours["comment"]]
    assert job.name.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("words", WORDS)
def test_words_in_accounting_harm_no_other_link(fake: FakeSlurmrestd, cluster: RestCluster, words: bytes) -> None:
    past = recorded("db.jobs")
    fake.answers[PAST] = past
    ids = [job["job_id"] for job in past["jobs"]]
    expected = {f"mirage:c:{job_id}": JobId(job_id) for job_id in ids}
    before = cluster.snapshot(expected=expected).links
    past["jobs"][0]["comment"] = {"job": "WORDS"}
    fake.answers[PAST] = spoiled(past, words)
    assert cluster.snapshot(expected=expected).links == before
    past["jobs"][0]["name"] = past["jobs"][0]["user"] = "WORDS"
    fake.answers[PAST] = spoiled(past, words)
    cluster.past_jobs(0, 3_600)


@pytest.mark.parametrize("number", ["1e400", "NaN", "-Infinity", "9" * 10_000, "1e-400"])
def test_odd_number_costs_its_row_alone(fake: FakeSlurmrestd, cluster: RestCluster, number: str) -> None:
    jobs = recorded("jobs")
    fake.answers[JOBS] = jobs
    count = len(cluster.snapshot().pending)
    first_pending(jobs)["priority"] = "NUMBER"
    fake.answers[JOBS] = json.dumps(jobs).encode().replace(b'"NUMBER"', number.encode())
    assert len(cluster.snapshot().pending) == count - 1


@pytest.mark.parametrize("row", [None, 3, "job", [], {}, {"job_id": "x"}, {"job_id": None, "name": []}])
def test_odd_row_costs_itself_alone_and_loses_no_link(
    fake: FakeSlurmrestd, cluster: RestCluster, row: object, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, nodes, past = recorded("jobs"), recorded("nodes"), recorded("db.jobs")
    fake.answers |= {JOBS: jobs, NODES: nodes, PAST: past}
    before = cluster.snapshot()
    tag, link = next((tag, job) for tag, job in before.links.items() if not job.state.finished)
    table = cluster.past_jobs(0, 3_600)
    jobs["jobs"] = [job for job in jobs["jobs"] if job["job_id"] != link.job_id] + [row]
    nodes["nodes"].append(row)
    past["jobs"] = [job for job in past["jobs"] if job["job_id"] != link.job_id] + [row]
    others = {name for name in table.job_id.tolist() if name != str(link.job_id)}
    for _ in range(3):
        after = cluster.snapshot(expected={tag: link.job_id})
        assert after.links[tag] == link
        assert after.partitions == before.partitions
    assert set(cluster.past_jobs(0, 3_600).job_id.tolist()) == others
    for source in ("queue", "nodes", "accounting"):
        assert caplog.text.count(f"event=unreadable_rows source={source} ") == 1


def test_row_that_fails_late_leaves_nothing_of_itself(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    jobs = recorded("jobs")
    fake.answers[JOBS] = jobs
    count = len(cluster.snapshot().pending)
    first_pending(jobs)["account"] = 3
    snapshot = cluster.snapshot()
    assert len(snapshot.pending) == count - 1
    assert len(snapshot.labels.of(snapshot.pending.job_id.tolist())) == len(set(snapshot.pending.job_id.tolist()))


def test_nodes_of_which_none_is_understood_are_no_answer(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    fake.answers[NODES] = EMPTY | {"nodes": [{}, 3]}
    with pytest.raises(ClusterUnavailable, match="not as expected"):
        cluster.snapshot()


def test_words_of_a_command_are_any_bytes(tmp_path: pathlib.Path, executable: Callable[[str], None]) -> None:
    executable("printf 'x\\377\\000\\303'; printf '\\355\\240\\200' >&2")
    answer = CommandRunner({"PATH": str(tmp_path)}).run(["said"])
    assert answer.out.encode("utf-8", "surrogateescape") == b"x\xff\x00\xc3"
    assert answer.err.encode("utf-8", "surrogateescape") == b"\xed\xa0\x80"


@pytest.fixture
def executable(tmp_path: pathlib.Path) -> Callable[[str], None]:
    def write(script: str) -> None:
        file = tmp_path / "said"
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)

    return write
