"""The REST backend against a slurmrestd that misbehaves, and against recorded answers."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from backends.fake_slurmrestd import FakeSlurmrestd, slurmrestd
from backends.rest_world import ASSETS, EMPTY, REQUEST, Noon, client, cluster, fake, half, recorded, token

from mirage.backends.rest import RestCluster, RestVersion
from mirage.domain.errors import (
    ClusterUnavailable,
    UnsupportedSlurm,
)
from mirage.domain.job import ABSENT, JobId, JobState
from mirage.domain.link import NO_JOB
from mirage.domain.tags import PastLinks

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cluster", "fake", "token"]


# Versions


def test_the_newest_known_version_is_taken(fake: FakeSlurmrestd, token: Path) -> None:
    fake.answers["/slurm/v0.0.36/ping"] = fake.answers["/slurm/v0.0.99/ping"] = {"pings": []}
    assert RestVersion().of(client(fake, token)) == 38


def test_a_version_counts_while_slurmctld_is_down(fake: FakeSlurmrestd, token: Path) -> None:
    fake.answers["/slurm/v0.0.38/ping"] = (500, {"errors": [{"error": "Unable to contact slurm controller"}]})
    assert RestVersion().of(client(fake, token)) == 38


def test_the_version_is_asked_for_once(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    cluster.snapshot()
    fake.asked.clear()
    cluster.snapshot()
    assert fake.paths() == ["/slurm/v0.0.38/jobs", "/slurm/v0.0.38/nodes"]


def test_unknown_versions_are_listed(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    paths = {"/slurm/v0.0.99/jobs": {}, "/slurm/v0.0.100/jobs/": {}, "/openapi": {}}
    fake.answers = {"/openapi/v3": {"paths": paths}}
    with pytest.raises(UnsupportedSlurm, match=r"offers v0\.0\.99, v0\.0\.100; .* v0\.0\.36 to v0\.0\.46"):
        cluster.snapshot()


def test_an_upgraded_slurmrestd_is_asked_anew(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    cluster.snapshot()
    fake.answers = {path.replace("38", "37"): answer for path, answer in fake.answers.items()}
    with pytest.raises(ClusterUnavailable, match="upgraded"):
        cluster.snapshot()
    assert cluster.snapshot().time == Noon().now()


# Bad answers


def hang_up(handler: Any) -> None:
    handler.close_connection = True


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(half, id="half"),
        pytest.param(hang_up, id="nothing"),
        pytest.param(b"", id="empty"),
        pytest.param(b"<html><body>Bad gateway</body></html>", id="html"),
        pytest.param((502, b"<html>"), id="proxy"),
        pytest.param(b"\x00\xff\xfe garbage", id="garbage"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param([1, 2], id="list"),
        pytest.param({"errors": []}, id="no-jobs"),
        pytest.param({"errors": [], "jobs": {"a": 1}}, id="jobs-no-list"),
        pytest.param({"errors": [], "jobs": [3]}, id="jobs-of-numbers"),
        pytest.param({"errors": [], "jobs": [{"job_id": 1}]}, id="job-without-fields"),
        pytest.param({"errors": [{"error_number": -1, "error": "Unspecified error"}], "jobs": []}, id="errors"),
        pytest.param((500, {"errors": [{"error": "Zero Bytes were transmitted"}], "jobs": []}), id="500"),
        pytest.param((401, b"Authentication failure"), id="401"),
        pytest.param((429, b"slow down"), id="429"),
    ],
)
@pytest.mark.parametrize("path", ["/slurm/v0.0.38/jobs", "/slurm/v0.0.38/nodes"])
def test_a_bad_answer_is_never_an_empty_queue(
    fake: FakeSlurmrestd, cluster: RestCluster, path: str, answer: Any
) -> None:
    fake.answers[path] = answer
    with pytest.raises(ClusterUnavailable, match=r"127\.0\.0\.1"):
        cluster.snapshot(expected={"mirage:c:1": JobId(1)})


def test_a_question_that_was_dropped_is_asked_once_more(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    path = "/slurm/v0.0.38/jobs"
    whole, dropped = fake.answers[path], []

    def drops_the_first(handler: Any) -> None:
        if not dropped:
            dropped.append(path)
            hang_up(handler)
            return
        handler.reply(200, json.dumps(whole).encode())

    fake.answers[path] = drops_the_first
    assert cluster.snapshot().time == Noon().now()
    assert dropped


@pytest.mark.parametrize("number", [0, 9003])
def test_accounting_that_finds_nothing_knows_of_no_jobs(
    fake: FakeSlurmrestd, cluster: RestCluster, number: int
) -> None:
    said = {"error": "Nothing found with query" if number == 0 else "", "error_number": number}
    fake.answers["/slurmdb/v0.0.38/jobs"] = {"errors": [said]}
    assert len(cluster.past_jobs(0, 3_600)) == 0


def test_past_links_of_a_slurmrestd_without_accounting_are_not_known(
    fake: FakeSlurmrestd, cluster: RestCluster
) -> None:
    fake.answers.pop("/slurmdb/v0.0.38/jobs", None)
    assert cluster.past_links(0, 3_600, ()) is None
    fake.answers["/slurmdb/v0.0.38/jobs"] = {"errors": [], "jobs": []}
    assert cluster.past_links(0, 3_600, ()) == PastLinks()
    fake.answers["/slurmdb/v0.0.38/jobs"] = (500, {"errors": [{"error": "slurmdbd is away"}], "jobs": []})
    with pytest.raises(ClusterUnavailable):
        cluster.past_links(0, 3_600, ())


def test_a_silent_slurmrestd_is_given_up(fake: FakeSlurmrestd, token: Path) -> None:
    awake = threading.Event()
    fake.answers["/slurm/v0.0.38/jobs"] = lambda _: awake.wait(30) and None
    try:
        with pytest.raises(ClusterUnavailable, match="timed out"):
            RestCluster(client(fake, token, timeout=0.3), Noon(), RestVersion(38)).snapshot()
    finally:
        awake.set()


def test_a_trickling_answer_is_given_up(fake: FakeSlurmrestd, token: Path) -> None:
    awake = threading.Event()

    def trickle(handler: Any) -> None:
        handler.reply(200, b"{", length=1 << 20)
        while not awake.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    fake.answers["/slurm/v0.0.38/jobs"] = trickle
    try:
        with pytest.raises(ClusterUnavailable, match="timed out"):
            RestCluster(client(fake, token, timeout=0.5), Noon(), RestVersion(38)).snapshot()
    finally:
        awake.set()


def test_nobody_listens(token: Path) -> None:
    with slurmrestd() as gone:
        pass
    with pytest.raises(ClusterUnavailable, match="refused"):
        RestCluster(client(gone, token), Noon()).snapshot()


def test_one_odd_job_does_not_hide_the_others(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    jobs = recorded("jobs")
    count = len(cluster_of(jobs, fake, cluster).pending)
    odd = next(job for job in jobs["jobs"] if job["job_state"] == "PENDING" and not job["array_task_string"])
    odd["job_state"] = "DREAMING"
    assert len(cluster_of(jobs, fake, cluster).pending) == count - 1


def cluster_of(jobs: Any, fake: FakeSlurmrestd, cluster: RestCluster) -> Any:
    fake.answers["/slurm/v0.0.38/jobs"] = jobs
    return cluster.snapshot()


# Queries


def test_at_most_three_questions(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    fake.answers["/slurm/v0.0.38/jobs"] = recorded("jobs")
    fake.answers["/slurmdb/v0.0.38/jobs"] = recorded("db.jobs")
    cluster.snapshot()
    fake.asked.clear()
    cluster.snapshot(expected={f"mirage:lost:{k}": JobId(10_000 + k) for k in range(1, 30)})
    assert len(fake.asked) == 3
    assert fake.asked[-1].query.startswith("step=10001%2C10002%2C")


def test_a_link_without_an_id_is_looked_for_by_time(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    cluster.snapshot(expected={"mirage:c:1": NO_JOB})
    assert fake.asked[-1].query == f"start_time=uts{Noon().now() - 2 * 86_400}&skip_steps=true"


def test_a_link_that_has_left_is_found_in_the_accounting(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    fake.answers["/slurmdb/v0.0.38/jobs"] = recorded("db.jobs")
    failed = int(json.loads((ASSETS / "22.05.8" / "index.json").read_text())["jobs"]["failed"])
    job = cluster.snapshot(expected={"mirage:c:1": JobId(failed)}).links["mirage:c:1"]
    assert (job.job_id, job.state, job.tag) == (failed, JobState.FAILED, "mirage:c:1")
    assert job.exit_code == ABSENT


def test_without_accounting_what_has_left_is_not_known(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    del fake.answers["/slurmdb/v0.0.38/jobs"]
    assert cluster.snapshot(expected={"mirage:c:1": JobId(1)}).links == {}


def test_a_link_seen_stays_while_accounting_is_down(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    fake.answers["/slurm/v0.0.38/jobs"] = recorded("jobs")
    seen = cluster.snapshot().links["mirage:abc:1"]
    fake.answers["/slurm/v0.0.38/jobs"] = EMPTY
    down = {"errors": [{"error_number": 7000, "error": "Unable to connect to database"}]}
    fake.answers["/slurmdb/v0.0.38/jobs"] = (500, down)
    assert cluster.snapshot(expected={seen.tag: seen.job_id}).links == {seen.tag: seen}
    assert cluster.snapshot(expected={"mirage:c:1": JobId(1)}).unaccounted == {"mirage:c:1"}


def test_list_that_slurmrestd_does_not_understand_is_asked_in_parts(
    fake: FakeSlurmrestd, cluster: RestCluster
) -> None:
    wrong = {"errors": [{"error_number": 9201, "error": "Unable to parse parameter step"}]}
    fake.answers["/slurmdb/v0.0.38/jobs"] = (500, wrong)
    expected = {"mirage:a:1": JobId(1), "mirage:b:1": JobId(2)}
    assert cluster.snapshot(expected=expected).unaccounted == expected.keys()
    steps = [request.query for request in fake.asked if request.path == "/slurmdb/v0.0.38/jobs"]
    assert steps == [f"step={ids}&skip_steps=true" for ids in ("1%2C2", "1", "2")]


def test_without_the_queue_nodes_are_not_asked_for(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    fake.answers["/slurm/v0.0.38/jobs"] = recorded("jobs")
    snapshot = cluster.snapshot(queue=False)
    assert set(snapshot.links) >= {"mirage:abc:1", "mirage:abc:2"}
    assert "/slurm/v0.0.38/nodes" not in fake.paths()


def test_there_are_no_estimates(cluster: RestCluster) -> None:
    with pytest.raises(ClusterUnavailable, match="cannot report"):
        cluster.estimate_start(REQUEST)
