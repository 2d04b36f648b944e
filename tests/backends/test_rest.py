"""The REST back end against a slurmrestd that misbehaves, and against recorded answers."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from backends.fake_slurmrestd import FakeSlurmrestd, slurmrestd

from mirage.backends.rest import RestCluster, RestVersion
from mirage.backends.restactuator import OwnToken, RestActuator, TokenDirectory
from mirage.backends.restclient import Address, Credentials, RestClient
from mirage.domain.chain import NO_JOB
from mirage.domain.errors import (
    ClusterUnavailable,
    ConfigError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
    UnsupportedSlurm,
)
from mirage.domain.job import ABSENT, BatchScript, JobChange, JobId, JobRequest, JobState, WarnSignal

if TYPE_CHECKING:
    from collections.abc import Iterator

ASSETS = Path(__file__).resolve().parents[1] / "assets"
RECORDED = ASSETS / "22.05.8" / "rest" / "v0.0.38"
EMPTY: dict[str, Any] = {"errors": [], "jobs": [], "nodes": []}
REQUEST = JobRequest("link", "alice", 3_600, tag="mirage:c:1", batch=BatchScript("#!/bin/sh\nsleep 1\n"))


class Noon:
    def now(self) -> int:
        return 1_700_000_000


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture
def fake() -> Iterator[FakeSlurmrestd]:
    with slurmrestd() as running:
        running.answers = {
            "/slurm/v0.0.38/ping": {"errors": [], "pings": []},
            "/slurm/v0.0.38/jobs": EMPTY,
            "/slurm/v0.0.38/nodes": EMPTY,
            "/slurmdb/v0.0.38/jobs": EMPTY,
        }
        yield running


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "alice.jwt"
    file.write_text("a.good.token\n")
    return file


@pytest.fixture
def cluster(fake: FakeSlurmrestd, token: Path) -> RestCluster:
    return RestCluster(client(fake, token), Noon())


@pytest.fixture
def actuator(fake: FakeSlurmrestd, token: Path) -> RestActuator:
    return RestActuator(Address.parse(fake.address), TokenDirectory(token.parent), Noon(), timeout=5)


def client(fake: FakeSlurmrestd, token: Path, timeout: float = 5) -> RestClient:
    return RestClient(Address.parse(fake.address), Credentials("alice", str(token)), timeout)


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


def half(handler: Any) -> None:
    handler.reply(200, b'{"errors": [], "jobs": [', length=5_000)


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


# Questions


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


def test_without_the_queue_nodes_are_not_asked_for(fake: FakeSlurmrestd, cluster: RestCluster) -> None:
    fake.answers["/slurm/v0.0.38/jobs"] = recorded("jobs")
    snapshot = cluster.snapshot(queue=False)
    assert set(snapshot.links) >= {"mirage:abc:1", "mirage:abc:2"}
    assert "/slurm/v0.0.38/nodes" not in fake.paths()


def test_there_are_no_estimates(cluster: RestCluster) -> None:
    assert cluster.estimate_start(REQUEST) == ABSENT


# Addresses and tokens


def test_over_a_unix_socket_without_a_token(tmp_path: Path) -> None:
    with slurmrestd(tmp_path / "s") as fake:
        fake.answers = {"/slurm/v0.0.38/jobs": EMPTY, "/slurm/v0.0.38/nodes": EMPTY}
        asker = RestClient(Address.parse(fake.address), Credentials("alice"), 5)
        assert RestCluster(asker, Noon(), RestVersion(38)).snapshot().partitions == ()
    assert "X-SLURM-USER-TOKEN" not in fake.asked[0].headers


@pytest.mark.parametrize(
    "text",
    ["", "localhost:6820", "ftp://h", "http://", "unix:relative", "http://h:port", "http://u:p@h", "http://h?x"],
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="slurmrestd"):
        Address.parse(text)


def test_behind_a_proxy_paths_have_its_prefix(fake: FakeSlurmrestd, token: Path) -> None:
    fake.answers["/api/slurm/v0.0.38/jobs"] = fake.answers["/api/slurm/v0.0.38/nodes"] = EMPTY
    address = Address.parse(f"{fake.address}/api/")
    RestCluster(RestClient(address, Credentials("alice", str(token))), Noon(), RestVersion(38)).snapshot()
    assert fake.paths()[0] == "/api/slurm/v0.0.38/jobs"


def test_the_token_is_read_at_each_use(fake: FakeSlurmrestd, cluster: RestCluster, token: Path) -> None:
    cluster.snapshot()
    token.write_text("SLURM_JWT=another.good.token")
    cluster.snapshot()
    seen = [asked.headers["X-SLURM-USER-TOKEN"] for asked in fake.asked]
    assert (seen[0], seen[-1]) == ("a.good.token", "another.good.token")
    assert {asked.headers["X-SLURM-USER-NAME"] for asked in fake.asked} == {"alice"}


@pytest.mark.parametrize("text", ["", "two tokens", "a\nb", "naïve"])
def test_a_file_without_a_token_is_named(cluster: RestCluster, token: Path, text: str) -> None:
    token.write_text(text)
    with pytest.raises(ClusterUnavailable, match=r"alice\.jwt"):
        cluster.snapshot()


def test_a_refused_token_is_named(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    fake.answers["/slurm/v0.0.38/job/submit"] = (401, b"Authentication failure")
    with pytest.raises(NotPermitted, match=r"alice\.jwt.*expired"):
        actuator.submit(REQUEST)


@pytest.mark.parametrize("owner", ["bob", "../alice", "", "alice/x", "."])
def test_no_token_no_act(fake: FakeSlurmrestd, actuator: RestActuator, owner: str) -> None:
    for act in (
        lambda: actuator.submit(replace(REQUEST, user=owner)),
        lambda: actuator.cancel(JobId(1), owner),
        lambda: actuator.update(JobId(1), owner, JobChange(nice=1)),
        lambda: actuator.signal(JobId(1), owner, "USR1", batch_only=False),
    ):
        with pytest.raises(NotPermitted, match=r"bob\.jwt" if owner == "bob" else "user name"):
            act()
    assert fake.asked == []


def test_ones_own_token_is_for_oneself() -> None:
    with pytest.raises(NotPermitted, match="bob"):
        OwnToken(Credentials("alice")).of("bob")


# Acts


def test_what_is_submitted(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    fake.answers["/slurm/v0.0.38/job/submit"] = {"errors": [], "job_id": 7}
    batch = BatchScript(
        "#!/bin/sh\n", environment=(("A", "b=c"), ("SLURM_JWT", "secret")), directory="/home/alice"
    )
    request = replace(
        REQUEST, nodes=2, gres_per_node=(("gpu:a100", 4),), features=("a", "b"), limit=3_601, batch=batch,
        warn=WarnSignal("USR1", 120), requeue=False, exclusive=True, memory_mb_per_node=2_000,
    )  # fmt: skip
    assert actuator.submit(request) == 7
    assert fake.asked[-1].body == {
        "script": "#!/bin/sh\n",
        "job": {
            "name": "link",
            "nodes": 2,
            "time_limit": 61,
            "no_requeue": True,
            "constraints": "a&b",
            "exclusive": "exclusive",
            "memory_per_node": "2000M",
            "gres": "gpu:a100:4",
            "signal": "USR1@120",
            "comment": "mirage:c:1",
            "current_working_directory": "/home/alice",
            "environment": {"A": "b=c"},
        },
    }


def test_a_remark_beside_a_job_id_is_no_refusal(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    fake.answers["/slurm/v0.0.38/job/submit"] = recorded("submit")
    assert actuator.submit(replace(REQUEST, held=True)) == recorded("submit")["job_id"]


def test_a_warning_to_the_batch_shell_alone_is_refused_where_it_would_be_lost(
    fake: FakeSlurmrestd, actuator: RestActuator
) -> None:
    with pytest.raises(SubmissionRejected, match="signal=B:"):
        actuator.submit(replace(REQUEST, warn=WarnSignal("USR1", 60, batch_only=True)))
    assert "/slurm/v0.0.38/job/submit" not in fake.paths()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (recorded("error.submit-limit"), SubmissionRejected),
        (
            (500, {"errors": [{"error_number": 1800, "error": "Unable to contact slurm controller"}]}),
            ClusterUnavailable,
        ),
        ({"errors": []}, ClusterUnavailable),
        ({"errors": [], "job_id": 0}, ClusterUnavailable),
        ((400, b"Unable to parse query."), SubmissionRejected),
        (half, ClusterUnavailable),
    ],
)
def test_submissions_that_fail(fake: FakeSlurmrestd, actuator: RestActuator, answer: Any, error: Any) -> None:
    fake.answers["/slurm/v0.0.38/job/submit"] = answer
    with pytest.raises(error):
        actuator.submit(REQUEST)


def test_only_pending_jobs_are_changed(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    job = recorded("job.held-link")
    fake.answers["GET /slurm/v0.0.38/job/9"] = job
    fake.answers["POST /slurm/v0.0.38/job/9"] = {"errors": []}
    job["jobs"][0]["job_id"] = 9
    actuator.update(JobId(9), "alice", JobChange(held=False, nice=0, begin=0))
    assert fake.asked[-1].body == {"hold": False, "nice": 0, "begin_time": "uts1000000"}
    job["jobs"][0]["job_state"] = "RUNNING"
    fake.asked.clear()
    with pytest.raises(UnknownJob, match="9"):
        actuator.update(JobId(9), "alice", JobChange(nice=5))
    assert {asked.method for asked in fake.asked} == {"GET"}


def test_cancelling_what_has_ended_is_no_error(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    ended = {"errors": [{"error_number": 2021, "error": "Job/step already completing or completed"}]}
    fake.answers["/slurm/v0.0.38/job/9"] = (500, ended)
    actuator.cancel(JobId(9), "alice")
    assert fake.asked[-1].method == "DELETE"


@pytest.mark.parametrize(
    ("code", "text", "error"),
    [(2002, "Access/permission denied", NotPermitted), (2017, "Invalid job id specified", UnknownJob)],
)
def test_since_42_a_refusal_stands_beside_an_empty_list_of_errors(
    fake: FakeSlurmrestd, actuator: RestActuator, code: int, text: str, error: Any
) -> None:
    fake.answers["/slurm/v0.0.42/ping"] = {"errors": []}
    fake.answers["/slurm/v0.0.42/job/9"] = {"errors": [], "status": [{"error": {"code": code, "string": text}}]}
    with pytest.raises(error, match="9"):
        actuator.cancel(JobId(9), "alice")


@pytest.mark.parametrize(("user", "state"), [("bob", "PENDING"), ("alice", "COMPLETED"), ("alice", "RUNNING")])
def test_40_and_41_do_not_tell_so_the_job_is_looked_at_before(
    fake: FakeSlurmrestd, actuator: RestActuator, user: str, state: str
) -> None:
    fake.answers["/slurm/v0.0.41/ping"] = {"errors": []}
    fake.answers["/slurm/v0.0.41/job/9"] = {
        "errors": [],
        "jobs": [{"job_id": 9, "user_name": user, "job_state": [state]}],
    }
    if user == "bob":
        with pytest.raises(NotPermitted, match="bob"):
            actuator.cancel(JobId(9), "alice")
    else:
        actuator.cancel(JobId(9), "alice")
    assert ("DELETE" in {asked.method for asked in fake.asked}) == (state == "RUNNING")
