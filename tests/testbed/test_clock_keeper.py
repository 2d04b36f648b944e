"""When the keeper of the fast clock steps in, look by look."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from onehost.clockkeeper import PATIENCE, Watch


def test_a_holder_who_never_gives_it_back_is_given_up_on() -> None:
    watch = Watch()
    assert [watch.look(0) for _ in range(2 * PATIENCE)] == ([0] * (PATIENCE - 1) + [1]) * 2


@given(st.lists(st.integers(1, PATIENCE - 1)))
def test_holders_who_give_it_back_are_left_alone(stretches: list[int]) -> None:
    watch = Watch()
    for stretch in stretches:
        assert [watch.look(0) for _ in range(stretch)] == [0] * stretch
        assert watch.look(1) == 0


def test_one_given_up_on_who_lived_after_all_does_not_let_two_in() -> None:
    assert Watch().look(2) == -1
