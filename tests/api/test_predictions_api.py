"""Predicted starts with past errors, and a user's pending jobs."""

from __future__ import annotations

import math
import os
import pwd
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from serving import serving
from shown_queues import NOW, columns, snapshot

from mirage.api.port import Inquiries
from mirage.control.guard import Asker, PredictorGuard
from mirage.control.prediction_requests import (
    PredictionRequest,
    PredictionResult,
    PredictorReply,
    Role,
    TooManyPredictionRequests,
)
from mirage.control.status import Status
from mirage.domain.decision import PlannedStart, WaitForecast
from mirage.domain.errors import ClusterUnavailable, PluginNotFound
from mirage.domain.job import ABSENT, NEVER, JobRequest
from mirage.predictors.registry import build_predictor
from mirage.replay.shadows import ShadowScore
from mirage.slurm.queuelabels import QueueLabels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World


ME = pwd.getpwuid(os.getuid()).pw_name
PATH = "/api/v1/predictions"


def measured(name: str, forecasts: int, error: float) -> ShadowScore:
    nan = math.nan
    return ShadowScore(name, True, forecasts, error, abs(error), 0.1, 0.75, 0, nan, nan, nan, nan, nan)


@dataclass
class Desk:
    """Answers immediately: one hour per node, P10 half of it and P90 twice."""

    asked: list[PredictionRequest] = field(default_factory=list)

    def ask(self, question: PredictionRequest) -> Future[PredictionResult]:
        self.asked.append(question)
        wait = 3_600 * question.request.nodes
        forecast = WaitForecast((0.1, 0.5, 0.9), (NOW + wait / 2, NOW + wait, NOW + 2 * wait))
        said = [PredictorReply("quantile", Role.IN_CHARGE, forecast)]
        if not question.only_charge:
            said += [PredictorReply("dqn", Role.SHADOW, None, "predicts no start")]
            said += (
                [PredictorReply("fixed:6h", Role.NAMED, WaitForecast.point(NOW + 21_600.0))]
                if question.named
                else []
            )
        answer: Future[PredictionResult] = Future()
        plan, where = PlannedStart.known(NOW + 7_200), question.request.partition
        answer.set_result(PredictionResult(NOW, ABSENT, plan, tuple(said), where))
        return answer

    def named(self, name: str, asker: Asker) -> PredictorGuard | None:
        if name.startswith("average:"):
            build_predictor(name)
        if name != "fixed:6h":
            raise PluginNotFound(f"no predictor {name!r}")
        return PredictorGuard(build_predictor(name), build_predictor("reactive"))

    def measured(self, of: JobRequest | str | None) -> tuple[ShadowScore, ...]:
        """Nothing is known but of partition ``gpu``."""
        if isinstance(of, JobRequest):
            return (measured("quantile", 4 + of.nodes, 0.5),) if of.partition == "gpu" else ()
        return (measured("quantile", 40, 0.5),) if of == "gpu" else ()


@pytest.fixture
def desk() -> Desk:
    return Desk()


QUEUE = snapshot(
    columns(
        {"job_id": 21, "nodes": 2, "start": NOW + 900},
        {"job_id": 22, "nodes": 2},
        {"job_id": 23, "nodes": 3, "eligible": NEVER},
        {"job_id": 24, "user": 1},
    ),
    columns({"job_id": 5, "start": NOW - 60}),
    (ME, "bob"),
)


@pytest.fixture
def predicting(world: World, desk: Desk) -> Iterator[World]:
    status = Status(NOW, "", QUEUE, cycles=1)
    inquiries = Inquiries(desk.ask, desk.named, desk.measured)
    with serving(world, status=lambda: status, inquiries=inquiries, now=lambda: NOW + 45) as served:
        yield served


def test_every_predictor_with_its_past_error_beside_it(predicting: World, desk: Desk) -> None:
    status, found = predicting.call(
        "GET", f"{PATH}?limit=48h&nodes=2&gres=gpu:a100:4&partition=gpu&predictor=fixed:6h"
    )
    assert status == 200, found
    assert (found["snapshot"], found["snapshot_age"]) == ("2023-11-14T22:13:20Z", 45)
    assert found["planned_start"] == "2023-11-15T00:13:20Z"
    assert found["shape"] == {
        "partition": "gpu",
        "nodes": 2,
        "limit": 172_800,
        "gres_per_node": {"gpu:a100": 4},
        "account": "",
        "qos": "",
    }
    charge, shadow, named = found["predictions"]
    assert (charge["predictor"], charge["role"]) == ("quantile", "in charge")
    assert (charge["wait_p10"], charge["wait_p50"], charge["wait_p90"]) == (3_600, 7_200, 14_400)
    assert charge["start_p50"] == "2023-11-15T00:13:20Z"
    past = {
        "of": "partition gpu",
        "forecasts": 40,
        "bias": 1_800,
        "absolute_error": 1_800,
        "pinball": 360,
        "coverage": 0.75,
    }
    assert charge["past"] == past
    assert charge["past_alike"] == past | {"of": "such jobs in partition gpu", "forecasts": 6}
    assert (shadow["start_p50"], shadow["trouble"], shadow["past"]) == (None, "predicts no start", None)
    assert (named["wait_p10"], named["wait_p50"], named["wait_p90"]) == (None, 21_600, None)
    (question,) = desk.asked
    assert question.request.user == ME
    assert question.request.gres_per_node == (("gpu:a100", 4),)


def test_waits_of_one_account_are_not_told_where_slurm_hides_jobs(world: World, desk: Desk) -> None:
    status, inquiries = Status(NOW, "", QUEUE, cycles=1), Inquiries(desk.ask, desk.named, desk.measured)
    seen = {"status": lambda: status, "inquiries": inquiries, "now": lambda: NOW}
    for hidden, user, account in ((True, "nobody", ""), (True, "", "research"), (False, "nobody", "research")):
        with serving(world, hides_jobs=lambda hidden=hidden: hidden, **seen) as served:
            served.call("GET", f"{PATH}?limit=1h&account=research", user=user)
        assert desk.asked[-1].request.account == account


def test_errors_in_another_partition_are_not_told(predicting: World) -> None:
    for query in ("limit=48h&partition=batch", "limit=48h"):
        charge = predicting.call("GET", f"{PATH}?{query}")[1]["predictions"][0]
        assert (charge["past"], charge["past_alike"]) == (None, None)


def test_a_class_of_few_says_nothing(predicting: World, desk: Desk) -> None:
    desk.measured = lambda alike: (measured("quantile", 4, math.nan),)  # type: ignore[method-assign]
    inquiries = Inquiries(desk.ask, desk.named, desk.measured)
    with serving(replace(predicting, service=replace(predicting.service, inquiries=inquiries))) as served:
        (charge, _) = served.call("GET", f"{PATH}?limit=3600")[1]["predictions"]
    assert charge["past"]["forecasts"] == 4
    assert charge["past"]["bias"] is None
    assert charge["past_alike"] is None


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 422, "limit"),
        ("limit=0", 422, "more than 0"),
        ("limit=soon", 422, "limit"),
        ("limit=48h&nodes=0", 422, "nodes"),
        ("limit=48h&nodes=11", 422, "the largest partition has 10 nodes"),
        ("limit=48h&partition=gpu&nodes=5", 422, "partition gpu has 4 nodes"),
        ("limit=48h&partition=nix", 422, "there are batch, gpu"),
        ("limit=48h&partition=$(id)", 422, "partition"),
        ("limit=48h&partition=gpu,batch&nodes=11", 422, "has 10 nodes"),
        ("limit=48h&partition=gpu,nix", 422, "'nix'"),
        ("limit=48h&partition=gpu,,batch", 422, "''"),
        ("limit=48h&partition=,", 422, "''"),
        ("limit=48h&gres=gpu::", 422, "gres"),
        ("limit=48h&gres=gpu:99999999999999999999", 422, "is more than any cluster has"),
        ("limit=48h&walltime=3", 422, "walltime"),
        ("limit=48h&predictor=nix", 422, "no predictor 'nix'"),
        (f"limit=48h&predictor=average:{'9' * 150}", 409, "a number of jobs from 1 to 10,000"),
    ],
)
def test_mistakes_name_the_parameter(predicting: World, query: str, status: int, words: str) -> None:
    found, problem = predicting.call("GET", f"{PATH}?{query}")
    assert (found, problem["status"]) == (status, status)
    assert words in problem["detail"]


def test_several_partitions_are_one_question(predicting: World, desk: Desk) -> None:
    found, _ = predicting.call("GET", f"{PATH}?limit=48h&partition=gpu,batch&nodes=8")
    assert found == 200
    assert desk.asked[-1].request.partition == "gpu,batch"


def broken(error: Exception) -> Future[PredictionResult]:
    promise: Future[PredictionResult] = Future()
    promise.set_exception(error)
    return promise


def test_what_the_loop_cannot_answer_is_a_problem(predicting: World, desk: Desk) -> None:
    def busy(question: PredictionRequest) -> Future[PredictionResult]:
        raise TooManyPredictionRequests("32 questions wait")

    for ask, expected in [
        (lambda question: broken(ClusterUnavailable("not answered yet")), 503),
        (busy, 503),
        (lambda question: Future(), 504),
    ]:
        inquiries = Inquiries(ask, desk.named, desk.measured)
        service = replace(predicting.service, inquiries=inquiries, patience=0.05)
        with serving(replace(predicting, service=service)) as served:
            assert served.call("GET", f"{PATH}?limit=48h")[0] == expected
    with serving(replace(predicting, service=replace(predicting.service, inquiries=None))) as served:
        assert served.call("GET", f"{PATH}?limit=48h")[0] == 503


def test_ones_own_pending_jobs_are_flat_and_ask_once_a_shape(predicting: World, desk: Desk) -> None:
    status, found = predicting.call("GET", "/api/v1/jobs?user=me")
    assert status == 200, found
    assert [
        (job["job_id"], job["planned_start"], job["predicted_start"], job["predictor"]) for job in found["jobs"]
    ] == [
        (21, "2023-11-14T22:28:20Z", "2023-11-15T00:13:20Z", "quantile"),
        (22, None, "2023-11-15T00:13:20Z", "quantile"),
        (23, None, None, ""),
    ]
    assert [job["name"] for job in found["jobs"]] == ["job-21", "job-22", "job-23"]
    assert len(desk.asked) == 1
    assert desk.asked[0].only_charge
    page = predicting.call("GET", "/api/v1/jobs?limit=2")[1]
    rest = predicting.call("GET", f"/api/v1/jobs?limit=2&cursor={page['next']}")[1]
    assert [job["job_id"] for each in (page, rest) for job in each["jobs"]] == [21, 22, 23]
    assert rest["next"] is None


def test_pending_jobs_name_who_answered_in_place(predicting: World, desk: Desk) -> None:
    def ask(question: PredictionRequest) -> Future[PredictionResult]:
        found = Desk().ask(question).result(0)
        (charge,) = found.said
        failed, instead = PredictorReply("auto", Role.IN_CHARGE, None, "busy"), replace(charge, role=Role.INSTEAD)
        answer: Future[PredictionResult] = Future()
        answer.set_result(replace(found, said=(failed, instead)))
        return answer

    inquiries = Inquiries(ask, desk.named, desk.measured)
    with serving(replace(predicting, service=replace(predicting.service, inquiries=inquiries))) as served:
        first = served.call("GET", "/api/v1/jobs")[1]["jobs"][0]
    assert (first["predicted_start"], first["predictor"]) == ("2023-11-15T00:13:20Z", "quantile")


def test_nothing_is_predicted_for_jobs_that_a_limit_keeps_pending(predicting: World, desk: Desk) -> None:
    ids = QUEUE.labels.job_id
    labels = QueueLabels.extending(QUEUE.labels, ids == 21, ids == 0, ids)
    status = Status(NOW, "", replace(QUEUE, labels=labels), cycles=1)
    with serving(replace(predicting, service=replace(predicting.service, status=lambda: status))) as served:
        found = served.call("GET", "/api/v1/jobs")[1]["jobs"]
    assert [(job["job_id"], job["predicted_start"] is None, job["predictor"]) for job in found] == [
        (21, True, ""),
        (22, False, "quantile"),
        (23, True, ""),
    ]


def test_one_pending_job_and_others_like_it(predicting: World, desk: Desk) -> None:
    status, found = predicting.call("GET", "/api/v1/jobs/21/prediction")
    assert status == 200, found
    assert (found["job"]["name"], found["job"]["account"]) == ("job-21", "account-1")
    assert found["job"]["planned_start"] == "2023-11-14T22:28:20Z"
    assert found["alike"]["shape"]["nodes"] == 2
    assert found["alike"]["predictions"][0]["wait_p50"] == 7_200
    assert predicting.call("GET", "/api/v1/jobs/5/prediction")[0] == 404, "it runs"
    assert predicting.call("GET", "/api/v1/jobs/999/prediction")[0] == 404


def test_others_jobs_are_not_ones_own(predicting: World) -> None:
    if os.getuid() != 0:
        pytest.skip("speaking as another user needs root")
    ordinary = "daemon"
    status, problem = predicting.call("GET", f"/api/v1/jobs?user={ME}", user=ordinary)
    assert status == 403
    assert "own jobs" in problem["detail"]
    assert predicting.call("GET", "/api/v1/jobs", user=ordinary)[1]["jobs"] == []
    assert predicting.call("GET", "/api/v1/jobs/21/prediction", user=ordinary)[0] == 404
    assert predicting.call("GET", "/api/v1/jobs?user=bob")[1]["jobs"][0]["job_id"] == 24
