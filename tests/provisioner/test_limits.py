"""The permit: each ceiling rejects at its bound and not before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.provisioner.limits import Limits, OwnerShares, Usage, permit

LIMITS = Limits(live_links=4, submissions_per_hour=10, submissions_per_hour_per_user=0, pause_after_refusals=3)
FREE = Usage(live_links=0, submissions_last_hour=0, not_before=0, shares=OwnerShares(submissions=10))


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [("live_links", 3, 4), ("submissions_last_hour", 9, 10), ("not_before", 100, 101)],
)
def test_each_ceiling_at_its_bound(field: str, allowed: int, refused: int) -> None:
    assert permit(100, replace(FREE, **{field: allowed}), LIMITS).granted
    denied = permit(100, replace(FREE, **{field: refused}), LIMITS)
    assert not denied.granted
    assert denied.reason


usages = st.builds(Usage, *[st.integers(0, 20)] * 3)


@given(usages, usages, st.integers(0, 20))
def test_using_more_never_permits_more(one: Usage, other: Usage, now: int) -> None:
    fields = ("live_links", "submissions_last_hour", "not_before")
    more = Usage(*(max(getattr(one, f), getattr(other, f)) for f in fields))
    assert permit(now, one, LIMITS).granted or not permit(now, more, LIMITS).granted


@given(usages)
def test_zero_means_no_ceiling(usage: Usage) -> None:
    assert permit(20, usage, Limits(0, 0, 0, 0)).granted
