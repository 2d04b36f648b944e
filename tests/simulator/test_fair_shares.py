"""What waiting jobs show of fair share."""

from __future__ import annotations

import numpy as np

from mirage.simulator.resume import Shares

NAN = float("nan")


def test_each_user_has_the_mean_of_their_jobs_and_others_that_of_all() -> None:
    shares = Shares.seen(np.array([7, 3, 7, 3, 5]), np.array([10.0, 4.0, 20.0, NAN, NAN]))
    assert shares.of(np.array([3, 7, 5, 99, -1])).tolist() == [4.0, 15.0, 34 / 3, 34 / 3, 34 / 3]


def test_where_nothing_is_seen_nobody_has_any() -> None:
    for shares in (Shares.none(), Shares.known(3, NAN), Shares.seen(np.array([1, 2]), np.array([NAN, NAN]))):
        assert shares.of(np.array([1, 3])).tolist() == [0.0, 0.0]


def test_what_is_known_better_counts_for_its_user_alone() -> None:
    seen = Shares.seen(np.array([1, 2]), np.array([10.0, 30.0]))
    for user in (0, 2, 9):
        both = seen.beside(Shares.known(user, 5.0))
        assert both.of(user) == 5.0
        assert both.of(1) == 10.0
        assert both.of(77) == 20.0
    assert seen.beside(Shares.known(2, NAN)).of(np.array([1, 2, 3])).tolist() == [10.0, 30.0, 20.0]


def test_a_share_known_alone_is_that_of_all_others() -> None:
    assert Shares.none().beside(Shares.known(4, 6.0)).of(np.array([4, 5])).tolist() == [6.0, 6.0]
