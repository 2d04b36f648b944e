"""The class of a job's waits against a slow reference that goes job by job, and what no class may ever mix."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.domain.decision import RecentWaits
from mirage.domain.job import ABSENT, BatchScript, JobRequest, gres_class
from mirage.domain.jobtable import JobTraits, Names, gres_columns
from mirage.features.waitclass import ENOUGH, LADDER, USED, ClassWaits, GresDemand, class_waits, gres_of

HOUR = 3_600
ASKED = JobRequest("s", "u", 2 * HOUR, 1, "p", "ml", "high", gres_per_node=(("gpu:a100", 4),))


@dataclass(frozen=True)
class Waited:
    """One job; empty texts: not known."""

    wait: int
    nodes: int = 1
    limit: int = 2 * HOUR
    account: str = "ml"
    qos: str = "high"
    gres: str = "gpu:a100"
    count: int = 4


def recent(jobs: list[Waited], **more: str) -> RecentWaits:
    def numbers(name: str) -> np.ndarray:
        return np.array([getattr(job, name) for job in jobs], dtype=np.int64)

    texts = (Names.encode([getattr(job, name) for job in jobs]) for name in ("account", "qos", "gres"))
    traits = JobTraits(*texts, numbers("count"))
    columns = (numbers(name) for name in ("wait", "nodes", "limit"))
    return RecentWaits(np.arange(len(jobs)), *columns, "p", traits, **more)


def found(jobs: list[Waited], request: JobRequest = ASKED, **more: str) -> ClassWaits:
    return class_waits(recent(jobs, **more), request)


# A slow reference: each job asked one thing after the other


def size_class(nodes: int) -> int:
    return next((k for k, most in enumerate((1, 4, 16, 64, 256)) if nodes <= most), 5)


def count_class(count: int) -> int:
    return next((k for k, most in enumerate((1, 2, 4, 8)) if count <= most), 4)


def limit_class(limit: int) -> int:
    return next((k for k, hours in enumerate((1, 4, 12, 24)) if limit <= hours * HOUR), 4)


def type_left_open(job: Waited, kinds: str) -> bool:
    mine, asked = job.gres.split(":"), kinds.split(":")
    return mine[0] == asked[0] and (len(mine) == 1 or len(asked) == 1 or mine == asked)


def slowly(jobs: list[Waited], request: JobRequest) -> list[int]:
    ((kinds, count),) = request.gres_per_node or (("none", 0),)

    def size(job: Waited, told: bool) -> bool:
        return size_class(job.nodes) == size_class(request.nodes) and (
            not told or count_class(job.count) == count_class(count)
        )

    for gres in ("same", "open", "any"):
        for qos in (True, False):
            for finer in ("account", "size", "limit", "none"):
                if gres == "any" and not qos and finer == "none":
                    return [job.wait for job in jobs][-USED:]
                kept = [
                    job.wait
                    for job in jobs
                    if (gres != "same" or job.gres == kinds)
                    and (gres != "open" or type_left_open(job, kinds))
                    and (not qos or job.qos == request.qos)
                    and (finer != "account" or job.account == request.account)
                    and (finer not in ("account", "size") or size(job, gres != "any"))
                    and (finer == "none" or limit_class(job.limit) == limit_class(request.limit))
                ]
                if len(kept) >= ENOUGH:
                    return kept[-USED:]
    raise AssertionError


JOBS = st.lists(
    st.builds(
        Waited,
        wait=st.integers(0, 10**6),
        nodes=st.sampled_from([1, 4, 300]),
        limit=st.sampled_from([HOUR, 2 * HOUR]),
        account=st.sampled_from(["ml", "bio", ""]),
        qos=st.sampled_from(["high", "high", "low", ""]),
        gres=st.sampled_from(["gpu:a100", "gpu:a100", "gpu:v100", "gpu", "none", ""]),
        count=st.sampled_from([0, 1, 4, 9]),
    ),
    max_size=400,
)
REQUESTS = st.builds(
    replace,
    st.just(ASKED),
    account=st.sampled_from(["ml", "new"]),
    qos=st.sampled_from(["high", "low", "new"]),
    gres_per_node=st.sampled_from([(("gpu:a100", 4),), (("gpu", 1),), ()]),
    nodes=st.sampled_from([1, 3, 300]),
)


@settings(max_examples=300)
@given(JOBS, REQUESTS)
def test_class_waits_are_those_of_the_slow_reference(jobs: list[Waited], request: JobRequest) -> None:
    assert found(jobs, request).wait.tolist() == slowly(jobs, request)


@settings(max_examples=300)
@given(JOBS, REQUESTS)
def test_class_mixes_no_qos_and_no_gres_while_enough_are_known(jobs: list[Waited], request: JobRequest) -> None:
    """Waits are numbered, so that the class shows the jobs in it."""
    jobs = [replace(job, wait=k) for k, job in enumerate(jobs)]
    members = [jobs[k] for k in found(jobs, request).wait.tolist()]
    kinds, _ = gres_class(request.gres_per_node)
    of_kind = [job for job in jobs if job.gres == kinds]
    if len(of_kind) >= ENOUGH:
        assert {job.gres for job in members} == {kinds}
    if sum(job.qos == request.qos for job in of_kind) >= ENOUGH:
        assert {job.qos for job in members} == {request.qos}


@given(JOBS)
def test_class_without_traits_is_that_of_size_and_limit(jobs: list[Waited]) -> None:
    """Replays, and waits from before these were kept: nothing changes for them."""
    unknown = [replace(job, account="", qos="", gres="", count=ABSENT) for job in jobs]
    of_limit = [job for job in jobs if limit_class(job.limit) == limit_class(ASKED.limit)]
    of_size = [job for job in of_limit if job.nodes == 1]
    wanted = next((some for some in (of_size, of_limit) if len(some) >= ENOUGH), jobs)
    assert found(unknown).wait.tolist() == [job.wait for job in wanted][-USED:]


# Descriptions


@pytest.mark.parametrize(
    ("other", "basis"),
    [
        ({}, "GRES gpu:a100, QOS high, account ml"),
        ({"account": "bio"}, "GRES gpu:a100, QOS high, any account"),
        ({"nodes": 8}, "GRES gpu:a100, QOS high, any account, any size"),
        ({"count": 1}, "GRES gpu:a100, QOS high, any account, any size"),
        ({"limit": 9 * HOUR}, "GRES gpu:a100, QOS high, any account, any size, any limit"),
        ({"qos": "low"}, "GRES gpu:a100, account ml, any QOS"),
        ({"gres": "gpu"}, "GRES gpu:a100 of any type, QOS high, account ml"),
        ({"gres": "gpu:v100"}, "QOS high, account ml, any GRES"),
        ({"gres": "", "qos": "", "account": ""}, "any GRES, any QOS, any account"),
        (
            {"gres": "none", "qos": "low", "account": "bio", "nodes": 8, "limit": 9 * HOUR},
            "any GRES, any QOS, any account, any size, any limit",
        ),
    ],
)
def test_basis_names_what_is_common_and_what_is_left_out(other: dict[str, str | int], basis: str) -> None:
    jobs = [replace(Waited(k), **other) for k in range(ENOUGH)]
    assert found(jobs).basis == f"{ENOUGH} waits of partition p, {basis}"


def test_request_that_names_none_has_its_predecessors_account_and_qos() -> None:
    jobs = [Waited(1) for _ in range(ENOUGH)] + [Waited(2, qos="low") for _ in range(5 * ENOUGH)]
    unnamed = replace(ASKED, account="", qos="")
    assert set(found(jobs, unnamed, usual_account="ml", usual_qos="high").wait.tolist()) == {1}
    assert "any QOS" in found(jobs, unnamed).basis


def test_size_counts_gres_on_each_node() -> None:
    jobs = [Waited(1, count=1) for _ in range(ENOUGH)] + [Waited(4) for _ in range(ENOUGH)]
    assert set(found(jobs).wait.tolist()) == {4}
    assert set(found(jobs, replace(ASKED, gres_per_node=(("gpu:a100", 1),))).wait.tolist()) == {1}


def test_gpus_that_options_ask_for_in_their_own_way_are_not_taken_for_none() -> None:
    batch = BatchScript("#!/bin/sh\n", ("--gpus=8",))
    assert gres_of(replace(ASKED, gres_per_node=(), batch=batch)) is None
    assert gres_of(replace(ASKED, batch=batch)) == ("gpu:a100", 4)
    assert gres_of(replace(ASKED, gres_per_node=())) == ("none", 0)


def test_ladder_begins_with_everything_and_ends_with_the_partition() -> None:
    assert (LADDER[0].gres, LADDER[0].qos, LADDER[0].account, LADDER[0].size, LADDER[0].limit) == (
        GresDemand.SAME,
        *(True,) * 4,
    )
    assert (LADDER[-1].gres, LADDER[-1].qos, LADDER[-1].account, LADDER[-1].size, LADDER[-1].limit) == (
        GresDemand.ANY,
        *(False,) * 4,
    )


# Generic resources as a class


@pytest.mark.parametrize(
    ("amounts", "nodes", "found"),
    [
        ((), 1, ("none", 0)),
        ((("gpu", 0),), 1, ("none", 0)),
        ((("gpu:a100", 8),), 2, ("gpu:a100", 4)),
        ((("nvme", 100), ("gpu", 3)), 2, ("gpu,nvme", 2)),
        ((("gpu", 3),), 0, ("gpu", 3)),
    ],
)
def test_gres_class_counts_on_each_node(
    amounts: tuple[tuple[str, int], ...], nodes: int, found: tuple[str, int]
) -> None:
    assert gres_class(amounts, nodes) == found


def test_gres_of_no_job_at_all_is_not_known() -> None:
    names, counts = gres_columns([("none", 0), ("none", 0)])
    assert (names.decode(), counts.tolist()) == (["", ""], [ABSENT, ABSENT])
    names, counts = gres_columns([("none", 0), ("npu", 2), ("", ABSENT)])
    assert (names.decode(), counts.tolist()) == (["none", "npu", ""], [0, 2, ABSENT])
