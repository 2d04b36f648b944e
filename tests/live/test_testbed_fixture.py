"""Basis of every live test: jobs run as their users, on Slurm's clock, and each test starts from nothing."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurm_testbed import Testbed

MINUTE = 60


def submit(testbed: Testbed, user: str, *options: str, plain: bool = False) -> str:
    return testbed.run(user, ["sbatch", "--parsable", *options], plain=plain).stdout.strip()


def state(testbed: Testbed, job: str) -> str:
    return testbed.ask("squeue", "-h", "-a", "-t", "all", "-j", job, "-o", "%T").strip()


def test_a_job_runs_on_slurms_clock_whichever_clock_its_submitter_has(testbed: Testbed) -> None:
    user = testbed.users[0]
    options = ("-t", "60", "-o", "/dev/null", "--wrap", "sleep 20m")
    jobs = [submit(testbed, user, *options, plain=plain) for plain in (False, True)]
    testbed.wait_until(lambda: {state(testbed, job) for job in jobs} == {"COMPLETED"}, 120, "both jobs")
    for job in jobs:
        record = testbed.ask("scontrol", "show", "job", "-o", job)
        run_time = next(field for field in record.split() if field.startswith("RunTime=")).removeprefix("RunTime=")
        hours, minutes, seconds = map(int, run_time.split(":"))
        assert 20 * MINUTE <= hours * 3600 + minutes * MINUTE + seconds < 26 * MINUTE


def test_now_is_slurms_time(testbed: Testbed) -> None:
    before = testbed.now()
    told = float(testbed.run(testbed.users[0], ["date", "+%s.%N"]).stdout)
    assert before - 1 <= told <= testbed.now() + 1


def test_reset_repairs_what_a_test_has_broken(testbed: Testbed) -> None:
    node = testbed.nodes[0]
    submit(testbed, testbed.users[0], "-t", "10", "-H", "-o", "/dev/null", "--wrap", "true")
    testbed.node(node, "down")
    testbed.service("slurmctld", "kill")
    testbed.service("slurmrestd", "pause")
    testbed.reset()
    assert testbed.queue() == []
    assert testbed.ask("sinfo", "-hN", "-n", node, "-o", "%T").split()[0] == "idle"


def test_rest_answers_the_bearer_of_a_token(testbed: Testbed) -> None:
    user = testbed.users[0]
    version = rest_version(testbed, user)
    request = urllib.request.Request(f"{testbed.rest}/slurm/{version}/ping")
    request.add_header("X-SLURM-USER-NAME", user)
    request.add_header("X-SLURM-USER-TOKEN", testbed.token(user))
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["pings"]


def rest_version(testbed: Testbed, user: str) -> str:
    """The newest version that slurmrestd offers, from its API description."""
    request = urllib.request.Request(f"{testbed.rest}/openapi/v3")
    request.add_header("X-SLURM-USER-NAME", user)
    request.add_header("X-SLURM-USER-TOKEN", testbed.token(user))
    with urllib.request.urlopen(request, timeout=30) as answer:
        paths = json.load(answer)["paths"]
    return max(str(path).split("/")[2] for path in paths if path.startswith("/slurm/v"))


def test_users_run_as_themselves_and_the_operator_may_touch_others_jobs(privileged_testbed: Testbed) -> None:
    testbed = privileged_testbed
    job = submit(testbed, "alice", "-H", "-t", "10", "-o", "/dev/null", "--wrap", "true")
    assert testbed.run("alice", ["id", "-un"]).stdout.strip() == "alice"
    refused = testbed.run("bob", ["scontrol", "update", f"JobId={job}", "Comment=mine"], check=False)
    assert refused.stderr.strip() == f"Invalid user id for job {job}"
    assert testbed.operator
    testbed.run(testbed.operator, ["scontrol", "update", f"JobId={job}", "Comment=seen"], plain=True)
    assert "Comment=seen" in testbed.ask("scontrol", "show", "job", job)
