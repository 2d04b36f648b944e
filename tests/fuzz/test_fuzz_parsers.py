"""Each reader answers or rejects any input as it promises; ``make fuzz`` does the same for longer."""

from __future__ import annotations

import os

import pytest
from fuzzing import Exhausts, Target, fuzz
from targets import TARGETS

from mirage.domain.errors import MirageError

EXAMPLES = 30
"""A target; the whole takes some ten seconds of a CPU."""
BY_NAME = {target.name: target for target in TARGETS}
SEED = 1 if "CI" in os.environ else int.from_bytes(os.urandom(4))


def test_names_are_given_once() -> None:
    assert len(BY_NAME) == len(TARGETS)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_right_is_taken(name: str) -> None:
    target = BY_NAME[name]
    assert target.corpus
    for given in target.corpus:
        target.read(given)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_is_nearly_right_is_taken_or_refused(name: str) -> None:
    fuzz(BY_NAME[name], EXAMPLES, SEED)


def ends(text: str) -> None:
    if "x" in text:
        raise KeyError(text)


def refuses_without_a_name(text: str) -> None:
    if "x" in text:
        raise MirageError("line 3 is wrong")


def spins(text: str) -> None:
    while "x" in text:
        pass


def swells(text: str) -> None:
    if "x" in text:
        bytearray(1 << 34)


@pytest.mark.parametrize(
    ("read", "names", "raised"),
    [(ends, "", "KeyError"), (refuses_without_a_name, "a.toml", "AssertionError"), (swells, "", "Exhausts")],
)
def test_a_fault_is_found(read: object, names: str, raised: str) -> None:
    """The fuzzer itself: of readers that are wrong in one of the ways it looks for."""
    target = Target("wrong", read, ("a", "b"), words=("x",) * 200, names=names)  # type: ignore[arg-type]
    with pytest.raises((KeyError, AssertionError, Exhausts)) as caught:
        fuzz(target, 200, 1)
    assert caught.typename == raised


def test_a_hang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzzing.LONGEST", 0.2)
    with pytest.raises(Exhausts, match="no answer within"):
        Target("hangs", spins, ("a",)).check("x")
