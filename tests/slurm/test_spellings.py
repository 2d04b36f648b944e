"""Slurm's spellings: documented examples, round trips, and any text at all."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, UNLIMITED, JobState
from mirage.slurm import duration, hostlist
from mirage.slurm.job_state import expand_job_ids, is_step, parse_end, parse_exit_code, parse_state
from mirage.slurm.tres import gres_of, memory_mb, parse_gres, parse_tres

if TYPE_CHECKING:
    from collections.abc import Callable

SLURMISH = st.text(alphabet="0123456789-:,[]_+%.=/()abcgpuKMG ", max_size=24)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),  # minutes
        ("30:15", 1815),  # minutes:seconds
        ("48:00:00", 172_800),
        ("2-00", 172_800),
        ("2-00:30", 174_600),
        ("2-00:00:01", 172_801),
        ("UNLIMITED", UNLIMITED),
        ("infinite", UNLIMITED),
    ],
)
def test_durations_of_the_sbatch_manual(text: str, seconds: int) -> None:
    assert duration.parse(text) == seconds


@pytest.mark.parametrize("text", ["", "abc", "1:2:3:4", "1-", "-5", "1-2-3", "\uff11"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(BadSpelling, match="expected a time"):
        duration.parse(text)


def test_a_job_may_have_no_limit_of_its_own() -> None:
    assert duration.parse_limit("Partition_Limit") == ABSENT
    assert duration.parse_limit("") == ABSENT
    assert duration.parse_limit("999999-00:00:00") == UNLIMITED


@given(st.integers(0, UNLIMITED - 1))
def test_durations_survive_printing(seconds: int) -> None:
    assert duration.parse(duration.spell(seconds)) == seconds


def test_no_limit_is_printed_as_slurm_does() -> None:
    assert duration.spell(UNLIMITED) == "UNLIMITED"
    assert duration.spell(90_061) == "1-01:01:01"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("48h", 172_800),
        ("90s", 90),
        ("2d", 172_800),
        ("10 min", 600),
        ("1d12h", 129_600),
        ("1.5h", 5400),
        ("6:00:00", 21_600),
        ("0", 0),
        ("0s", 0),
    ],
)
def test_durations_as_people_type_them(text: str, seconds: int) -> None:
    assert duration.parse_human(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("15ms", 0.015), ("250 us", 0.00025), ("0.5s", 0.5), ("1s500ms", 1.5), ("2m", 120.0)]
)
def test_short_durations_are_not_rounded(text: str, seconds: float) -> None:
    assert duration.parse_fine(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("reader", [duration.parse_human, duration.parse_fine])
@pytest.mark.parametrize("text", ["6", "", "h", "6 parsecs", "6h oops", "6h 3"])
def test_durations_without_a_unit_are_refused(text: str, reader: Callable[[str], object]) -> None:
    with pytest.raises(BadSpelling, match="unit"):
        reader(text)


@pytest.mark.parametrize("reader", [duration.parse_human, duration.parse_fine])
@pytest.mark.parametrize("text", ["UNLIMITED", " infinite", "-1"])
def test_durations_without_an_end_are_rejected(text: str, reader: Callable[[str], object]) -> None:
    with pytest.raises(BadSpelling, match="only a job's time limit can be UNLIMITED"):
        reader(text)
    assert duration.parse_human_limit(text) == UNLIMITED
    assert duration.parse_human_limit("48h") == 172_800


@pytest.mark.parametrize("text", ["-5", "1-2-3", "5:"])
def test_wrong_durations_are_not_told_of_unlimited(text: str) -> None:
    with pytest.raises(BadSpelling, match=r"^'.*': expected a time such as 48h[^U]*$"):
        duration.parse_human(text)


def test_whole_seconds_have_no_unit_below_one() -> None:
    with pytest.raises(BadSpelling, match="unit"):
        duration.parse_human("15ms")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login1", ["login1"]),
        ("a100-[001-003,007],login1", ["a100-001", "a100-002", "a100-003", "a100-007", "login1"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]-ib", ["n08-ib", "n09-ib", "n10-ib", "n11-ib"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
    ],
)
def test_host_lists_expand(text: str, names: list[str]) -> None:
    assert hostlist.expand(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n]1[", "n[3-1]", "n[a-b]", "a b", "n[1-999999999]", ",a", "n[]"])
def test_bad_host_lists_are_refused(text: str) -> None:
    with pytest.raises(BadSpelling):
        hostlist.expand(text)


def test_host_lists_fold_as_slurm_writes_them() -> None:
    names = ["a100-001", "a100-002", "a100-003", "a100-007", "login1", "n9", "n10", "head"]
    assert hostlist.fold(names) == "a100-[001-003,007],login1,n[9-10],head"
    assert hostlist.fold(["n08", "n09", "n10"]) == "n[08-10]"


HOSTS = st.from_regex(r"[a-z]{1,2}[0-9]{0,3}(-[0-9]{1,3}|x[0-9]{1,2}-ib)?", fullmatch=True)


@given(st.lists(HOSTS, max_size=30))
def test_host_lists_survive_folding(names: list[str]) -> None:
    assert sorted(hostlist.expand(hostlist.fold(names))) == sorted(set(names))


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("COMPLETED", JobState.COMPLETED),
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("OUT_OF_ME+", JobState.OUT_OF_MEMORY),
        ("oom", JobState.OUT_OF_MEMORY),
        ("CA", JobState.CANCELLED),
        ("CG", JobState.COMPLETED),
        ("CF", JobState.RUNNING),
        ("NODE_FAIL", JobState.NODE_FAIL),
        ("REQUEUED", JobState.PREEMPTED),
    ],
)
def test_states(text: str, state: JobState) -> None:
    assert parse_state(text) is state


@pytest.mark.parametrize("text", ["", "+", "SOMETHING", "RE+", "PASS"])
def test_unknown_or_ambiguous_states_are_refused(text: str) -> None:
    with pytest.raises(BadSpelling, match="not a job state"):
        parse_state(text)


def test_every_base_state_is_read_back_from_its_name() -> None:
    assert all(parse_state(state.name) is state for state in JobState)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [("10G", 10_240), ("4000M", 4000), ("4000", 4000), ("512K", 1), ("1.50G", 1536), ("2T", 2_097_152), ("0", 0)],
)
def test_memory(text: str, megabytes: int) -> None:
    assert memory_mb(text) == megabytes


def test_tres_and_gres() -> None:
    tres = parse_tres("cpu=4,mem=10G,node=1,billing=4,gres/gpu=5,gres/gpu:a100=4")
    assert tres[:4] == (("cpu", 4), ("mem", 10_240), ("node", 1), ("billing", 4))
    assert gres_of(tres) == (("gpu", 1), ("gpu:a100", 4))
    assert gres_of(parse_tres("gres/gpu=4,gres/gpu:a100=4")) == (("gpu:a100", 4),)
    assert parse_gres("gpu:a100:4") == (("gpu:a100", 4),)
    assert parse_gres("gres:gpu:2") == parse_gres("gres/gpu:2") == parse_gres("gpu=2") == (("gpu", 2),)
    assert parse_gres("npu:3(S:0-1),gpu") == (("npu", 3), ("gpu", 1))
    assert parse_gres("N/A") == parse_tres("") == ()


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=x", "=4", "cpu=4,,mem=1G", "mem=-5"])
def test_bad_tres_is_refused(text: str) -> None:
    with pytest.raises(BadSpelling):
        parse_tres(text)


def test_job_ids() -> None:
    assert expand_job_ids("123") == ["123"]
    assert expand_job_ids("123_4") == ["123_4"]
    assert expand_job_ids("123+1") == ["123+1"]
    assert expand_job_ids("123_[5-7,10%2]") == ["123_5", "123_6", "123_7", "123_10"]
    assert expand_job_ids("123_[0-8:4]") == ["123_0", "123_4", "123_8"]
    assert expand_job_ids("123_[1,3,...]") == ["123_[1,3,...]"]
    assert is_step("123.batch")
    assert is_step("123_4.0")
    assert not is_step("123_4")


def test_exit_codes() -> None:
    assert [parse_exit_code(t) for t in ("0:0", "1:0", "0:15", "3:9", "", "2")] == [0, 1, 143, 3, 0, 2]


READERS: list[Callable[[str], object]] = [
    duration.parse,
    duration.parse_limit,
    duration.parse_human,
    duration.parse_fine,
    hostlist.expand,
    parse_state,
    memory_mb,
    parse_tres,
    parse_gres,
    expand_job_ids,
    parse_exit_code,
]


@pytest.mark.parametrize("reader", READERS)
@given(text=st.one_of(st.text(max_size=20), SLURMISH))
def test_any_text_is_read_or_refused(reader: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(BadSpelling):
        reader(text)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED by 0", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),  # cut: by whom is unknown
        ("CANCELLED", JobState.NODE_FAIL),
        ("TIMEOUT", JobState.TIMEOUT),
    ],
)
def test_a_job_that_nobody_cancelled_was_lost_by_the_cluster(text: str, state: JobState) -> None:
    assert parse_end(text) is state
