"""Places that all users share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.shares import divide_loss, find_displaced, find_surplus

HELD = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 60))


@given(HELD, st.sampled_from("abcdefg"))
def test_displaced_user_still_has_no_fewer_than_the_newcomer(held: dict[str, int], newcomer: str) -> None:
    displaced = find_displaced(held, newcomer)
    own = held.get(newcomer, 0)
    if displaced is None:
        assert own >= max(held.values(), default=0) - 1
    else:
        assert held[displaced] == max(held.values())
        assert held[displaced] - 1 >= own + 1


@given(HELD, st.integers(1, 300))
def test_loss_is_borne_by_the_heaviest_users(held: dict[str, int], loss: int) -> None:
    lost = divide_loss(held, loss)
    kept = {user: count - lost.get(user, 0) for user, count in held.items()}
    assert all(count >= 0 for count in kept.values())
    total = sum(held.values())
    assert min(loss, total) <= sum(lost.values()) <= min(total, loss + len(held))
    assert all(kept[user] >= max(kept.values()) for user in lost), "who loses some keeps no less than others"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 50)), max_size=60), st.integers(0, 900))
def test_surplus_is_the_oldest_of_the_heaviest_users(held: list[tuple[str, int]], most: int) -> None:
    lost = set(find_surplus(held, most))
    kept = [each for position, each in enumerate(held) if position not in lost]
    assert sum(size for _, size in kept) <= most
    sizes = {user: sum(size for other, size in kept if other == user) for user in "abcdef"}
    for position in lost:
        user, _ = held[position]
        assert sizes[user] + 50 >= max(sizes.values()), "no user keeps much more than a user who lost some"
        assert all(earlier in lost for earlier in range(position) if held[earlier][0] == user)
    if sum(size for _, size in held) <= most:
        assert not lost
