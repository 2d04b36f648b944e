"""Reading takes time in proportion to the text: a line of thousands of equal signs delays no reader."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import pytest
from targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzzing import Target

LENGTH = 40_000
"""Characters: with the square of it a reader would take minutes."""
LONGEST = 1.5
"""Seconds of a CPU for one text; a few hundredths are usual."""
PIECES = (
    *(" ", "\t", "\n", "\r", ",", ";", ":", "=", "-", "+", "/", "\\", "|", ".", "*", "%", "#", "&", "!", "@"),
    *(
        "(",
        "[",
        "{",
        '"',
        "'",
        "a",
        "0",
        "a ",
        "a,",
        "a=",
        "0-",
        "0:",
        "[0",
        "[0-",
        "%A",
        "--a ",
        "=a,",
        "\\\n",
        " #",
    ),
    *("a=b ", "a[0-1]", '{"a":', "[[", "#SBATCH ", "#SBATCH -a\n", "1-0:0:0,", "mirage:", "gpu:"),
)
BY_NAME = {
    target.name: target for target in TARGETS if all(isinstance(each, str | bytes) for each in target.corpus)
}


def lengthened(target: Target, piece: str) -> list[object]:
    """Texts full of a fragment: alone, after a text that the reader takes, and within it."""
    right = target.corpus[0]
    text = right if isinstance(right, str) else right.decode("latin-1")
    many = piece * (LENGTH // len(piece))
    half = len(text) // 2
    texts = [many, text + many, text[:half] + many + text[half:]]
    return [each if isinstance(right, str) else each.encode("latin-1") for each in texts]


@pytest.fixture(autouse=True, scope="module")
def _no_garbage_of_earlier_tests() -> Iterator[None]:
    """A target that collects garbage is not charged for what this process has kept so far."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", BY_NAME)
def test_time_grows_no_faster_than_text(name: str) -> None:
    target, slow = BY_NAME[name], {}
    for piece in PIECES:
        for where, given in zip(("alone", "after", "within"), lengthened(target, piece), strict=True):
            if seconds(target, given) > LONGEST:
                # A loaded machine takes time from one measurement, not from each of three.
                again = min(seconds(target, given) for _ in range(2))
                if again > LONGEST:
                    slow[piece, where] = round(again, 1)
    assert not slow


def seconds(target: Target, given: object) -> float:
    began = time.process_time()
    target.check(given)
    return time.process_time() - began
