"""The requests that slurmrestd receives, the token they use, and those that it rejects."""

from __future__ import annotations

import base64
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from backends.fake_slurmrestd import FakeSlurmrestd, slurmrestd
from backends.rest_world import EMPTY, REQUEST, Noon, actuator, cluster, fake, half, recorded, token

from mirage.backends.links_only import JobIdentity, LinkGuard
from mirage.backends.rest import RestCluster, RestVersion
from mirage.backends.restactuator import OwnToken, RestActuator
from mirage.backends.restclient import Credentials, RestAddress, RestClient
from mirage.domain.errors import (
    BackEndLost,
    ClusterUnavailable,
    ConfigError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.job import BatchScript, JobChange, JobId, JobState, SignalReach, WarnSignal
from mirage.slurm.error_messages import is_permanent

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["actuator", "cluster", "fake", "token"]


# Addresses and tokens


def test_over_a_unix_socket_without_a_token(tmp_path: Path) -> None:
    with slurmrestd(tmp_path / "s") as fake:
        fake.answers = {"/slurm/v0.0.38/jobs": EMPTY, "/slurm/v0.0.38/nodes": EMPTY}
        asker = RestClient(RestAddress.parse(fake.address), Credentials("alice"), 5)
        assert RestCluster(asker, Noon(), RestVersion(38)).snapshot().partitions == ()
    assert "X-SLURM-USER-TOKEN" not in fake.asked[0].headers


@pytest.mark.parametrize(
    "text",
    ["", "localhost:6820", "ftp://h", "http://", "unix:relative", "http://h:port", "http://u:p@h", "http://h?x"],
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match="slurmrestd"):
        RestAddress.parse(text)


def test_behind_a_proxy_paths_have_its_prefix(fake: FakeSlurmrestd, token: Path) -> None:
    fake.answers["/api/slurm/v0.0.38/jobs"] = fake.answers["/api/slurm/v0.0.38/nodes"] = EMPTY
    address = RestAddress.parse(f"{fake.address}/api/")
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
        lambda: actuator.signal(JobId(1), owner, "USR1", reach=SignalReach.ALL),
    ):
        with pytest.raises(NotPermitted, match=r"bob\.jwt" if owner == "bob" else "user name"):
            act()
    assert fake.asked == []


def test_ones_own_token_is_for_oneself() -> None:
    with pytest.raises(NotPermitted, match="bob"):
        OwnToken(Credentials("alice")).of("bob")


# Whose a job is


def shown(**what: Any) -> dict[str, Any]:
    job = recorded("job.held-link")
    job["jobs"][0] |= {"job_id": 9, "user_name": "alice", "submit_time": 1_700_000_000} | what
    return job


def test_identity_is_asked_as_the_owner(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    fake.answers["GET /slurm/v0.0.38/job/9"] = shown(comment="mirage:c:1")
    assert actuator.identify(JobId(9), "alice") == JobIdentity(
        "alice", "mirage:c:1", 1_700_000_000, JobState.PENDING
    )
    assert fake.asked[-1].headers["X-SLURM-USER-NAME"] == "alice"


def test_identity_of_no_job_is_unknown(fake: FakeSlurmrestd, actuator: RestActuator) -> None:
    fake.answers["GET /slurm/v0.0.38/job/9"] = {"errors": [], "jobs": []}
    with pytest.raises(UnknownJob, match="9"):
        actuator.identify(JobId(9), "alice")
    fake.answers["GET /slurm/v0.0.38/job/9"] = shown(submit_time="yesterday")
    with pytest.raises(ClusterUnavailable):
        actuator.identify(JobId(9), "alice")


def test_job_with_the_id_of_a_link_is_not_touched(
    fake: FakeSlurmrestd, cluster: RestCluster, actuator: RestActuator
) -> None:
    guard = LinkGuard(cluster, actuator, actuator.identify)
    for answer in (shown(comment=""), shown(comment=None), shown(comment="mirage:c:1", user_name="bob")):
        fake.answers["GET /slurm/v0.0.38/job/9"] = answer
        for act in (
            lambda: guard.cancel(JobId(9), "alice"),
            lambda: guard.update(JobId(9), "alice", JobChange(held=False)),
            lambda: guard.signal(JobId(9), "alice", "USR1", reach=SignalReach.ALL),
        ):
            with pytest.raises(NotPermitted, match="9"):
                act()
    assert {asked.method for asked in fake.asked} == {"GET"}
    fake.answers["GET /slurm/v0.0.38/job/9"] = shown(comment="mirage:c:1")
    fake.answers["DELETE /slurm/v0.0.38/job/9"] = {"errors": []}
    guard.cancel(JobId(9), "alice")
    assert fake.asked[-1].method == "DELETE"


# Acts


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\n#SBATCH" + " -H" * (1 << 20), "InvalidOption"),
        ("#!/bin/sh a" + " " * (4 << 20), "InvalidScript"),
    ],
    ids=["directives", "first line"],
)
def test_submit_of_a_stored_script_beyond_bounds_is_rejected_for_good(
    fake: FakeSlurmrestd, actuator: RestActuator, script: str, reason: str
) -> None:
    batch = BatchScript(script, arguments=("y",))
    with pytest.raises(SubmissionRejected) as rejected:
        actuator.submit(replace(REQUEST, batch=batch))
    assert rejected.value.reason == reason
    assert is_permanent(reason)
    assert "/slurm/v0.0.38/job/submit" not in fake.paths()


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
            "environment": {
                "A": "b=c",
                "SLURM_SUBMIT_DIR": "/home/alice",
                "SLURM_SUBMIT_HOST": socket.gethostname(),
            },
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


def test_submission_that_slurmrestd_does_not_survive_is_told_apart(
    fake: FakeSlurmrestd, actuator: RestActuator
) -> None:
    for answer in (half, lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)):
        fake.answers["/slurm/v0.0.38/job/submit"] = answer
        with pytest.raises(BackEndLost):
            actuator.submit(REQUEST)
    fake.answers["/slurm/v0.0.38/job/submit"] = (503, b"busy")
    with pytest.raises(ClusterUnavailable) as unanswered:
        actuator.submit(REQUEST)
    assert not isinstance(unanswered.value, BackEndLost)


# A token's end


def jwt(claims: str) -> str:
    return f"e30.{base64.urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize("end", ["1700000000", "1699999999.5"])
def test_expired_token_is_named_and_nothing_is_sent(
    actuator: RestActuator, fake: FakeSlurmrestd, token: Path, end: str
) -> None:
    token.write_text(jwt(f'{{"exp": {end}}}'))
    for act in (lambda: actuator.submit(REQUEST), lambda: actuator.cancel(JobId(7), "alice")):
        with pytest.raises(NotPermitted, match=r"alice\.jwt expired at 2023-11-14 22:13 UTC; replace it"):
            act()
    assert fake.asked == []


@pytest.mark.parametrize(
    "text",
    [
        jwt('{"exp": 1700000001}'),
        *(
            jwt(claims)
            for claims in ("{}", "[]", "{", '{"exp": "soon"}', '{"exp": -1}', '{"exp": 1e300}', '{"exp": null}')
        ),
        "a.!.b",
        "opaque",
    ],
)
def test_token_that_names_no_past_end_is_slurms_to_judge(
    actuator: RestActuator, fake: FakeSlurmrestd, token: Path, text: str
) -> None:
    token.write_text(text)
    fake.answers["/slurm/v0.0.38/job/submit"] = {"errors": [], "job_id": 7}
    assert actuator.submit(REQUEST) == 7
