"""Whether a second job fits next to the first on its nodes: the answers of `scontrol show`, on every release."""

from __future__ import annotations

import pytest

from mirage.slurm.node_text import has_whole_nodes, requeued, why_shared

GPUS = (
    "NodeName=v1 CPUTot=40 Gres=gpu:v100:4 CfgTRES=cpu=40,mem=375G,billing=4,gres/gpu=4,gres/gpu:v100=4 AllocTRES="
)
"""Slurm 22.05."""


def job(over_subscribe: str, tres: str, field: str = "TRES", requeue: int = 0) -> str:
    return f"JobId=1 Requeue={requeue} ReqTRES=cpu=99 {field}={tres} OverSubscribe={over_subscribe} Contiguous=0\n"


@pytest.mark.parametrize("field", ["TRES", "AllocTRES"])
@pytest.mark.parametrize(
    ("over_subscribe", "tres", "nodes", "alone"),
    [
        ("OK", "cpu=1,node=1,billing=4,gres/gpu=4,gres/gpu:v100=4", 1, True),
        ("OK", "cpu=1,node=1,billing=2,gres/gpu=2,gres/gpu:v100=2", 1, False),
        ("OK", "cpu=21,node=1,billing=1", 1, True),
        ("OK", "cpu=20,node=1,billing=1", 1, False),
        ("OK", "cpu=8,node=2,gres/gpu=5", 2, True),
        ("OK", "cpu=8,node=2,gres/gpu=4", 2, False),
        ("OK", "", 1, False),
        ("YES", "cpu=40,node=1,gres/gpu=4", 1, False),
        ("USER", "cpu=40,node=1,gres/gpu=4", 1, False),
    ],
)
def test_resources_decide_where_nodes_may_be_shared(field, over_subscribe, tres, nodes, alone) -> None:
    shown = job(over_subscribe, tres, field)
    assert not has_whole_nodes(shown)
    assert (why_shared(shown, f"{GPUS}\n" * nodes) == "") is alone


@pytest.mark.parametrize(
    ("tres", "alone"), [("cpu=33,node=1,gres/gpu=3", False), ("cpu=40,node=1", True), ("cpu=1,gres/gpu=4", True)]
)
def test_job_that_may_have_more_nodes_is_kept_off_full_ones_alone(tres: str, alone: bool) -> None:
    assert (why_shared(job("OK", tres), GPUS, spreads=True) == "") is alone


def test_exclusive_job_has_whole_nodes() -> None:
    assert has_whole_nodes(job("NO", "cpu=1"))


@pytest.mark.parametrize(
    ("exclusive", "over_subscribe", "cpus", "whole", "alone"),
    [
        ("NODE", "NO", 1, True, True),
        ("NO", "NO", 1, False, False),
        ("NO", "NO", 21, False, True),
        ("NO", "YES", 21, False, False),
        ("USER", "NO", 21, False, False),
        ("MCS", "NO", 21, False, False),
    ],
)
def test_releases_that_show_exclusive_say_it_there(exclusive, over_subscribe, cpus, whole, alone) -> None:
    """Slurm 26.05: ``OverSubscribe=NO`` is what jobs on shared nodes have, too."""
    shown = job(f"{over_subscribe} Exclusive={exclusive}", f"cpu={cpus},node=1")
    assert has_whole_nodes(shown) is whole
    assert (whole or why_shared(shown, GPUS) == "") is alone


@pytest.mark.parametrize("shown", [job("NO", "cpu=1", requeue=1), "", "slurm_load_jobs error"])
def test_job_that_may_be_requeued_is_told(shown: str) -> None:
    assert requeued(shown)


def test_job_that_stays_is_not_told() -> None:
    assert not requeued(job("NO", "cpu=1"))


def test_unreadable_answers_prove_nothing() -> None:
    assert why_shared("", GPUS)
    assert not has_whole_nodes("")
