"""Everything that a user may name is bounded, and no field of a chain is without a bound."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum

import pytest
from fakes import chain
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain import bounds
from mirage.domain.bounds import CHAIN, Data, Many, Number, Pair, Record, Text
from mirage.domain.chain import Chain

NAMESPACE: dict[str, object] = {}
for module in ("chain", "failurepolicy", "job", "objective"):
    NAMESPACE |= vars(__import__(f"mirage.domain.{module}", fromlist=["*"]))


def unwrapped(kind: object) -> object:
    """Without ``None`` and the names of plain types."""
    options = [each for each in typing.get_args(kind) if each is not type(None)]
    if isinstance(kind, types.UnionType) and len(options) == 1:
        kind = options[0]
    return unwrapped(kind.__supertype__) if isinstance(kind, typing.NewType) else kind


def unbounded(kind: object, bound: object, place: str) -> list[str]:
    """Where a value of this type may be as large as it likes."""
    kind = unwrapped(kind)
    if kind is bool or (isinstance(kind, type) and issubclass(kind, Enum)):
        return []
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, NAMESPACE)
        within = bound.fields if isinstance(bound, Record) else {}
        found = []
        for field in dataclasses.fields(kind):
            below = {
                k.removeprefix(f"{field.name}."): b for k, b in within.items() if k.startswith(f"{field.name}.")
            }
            inner = Record(below) if below else within.get(field.name)
            found += unbounded(hints[field.name], inner, f"{place}.{field.name}" if place else field.name)
        return found
    if typing.get_origin(kind) is tuple:
        first, *rest = typing.get_args(kind)
        if rest == [Ellipsis]:
            return unbounded(first, bound.each, f"{place}.*") if isinstance(bound, Many) else [place]
        if not isinstance(bound, Pair):
            return [place]
        return unbounded(first, bound.first, f"{place}.0") + unbounded(rest[0], bound.second, f"{place}.1")
    fits = {int: Number, float: Number, str: Text | Data}[kind]
    return [] if isinstance(bound, fits) else [place]


def test_chain_every_field_has_a_bound() -> None:
    assert unbounded(Chain, CHAIN, "") == []


def test_chain_no_bound_is_for_a_field_that_is_gone() -> None:
    def known(kind: object, place: str) -> bool:
        name, _, rest = place.partition(".")
        hints = typing.get_type_hints(unwrapped(kind), NAMESPACE)
        return name in hints and (not rest or known(hints[name], rest))

    assert [place for place in CHAIN.fields if not known(Chain, place)] == []


def test_chain_as_people_write_it_is_within_bounds() -> None:
    assert CHAIN.problem(chain()) == ""


@pytest.mark.parametrize(
    "number", [10**30, -(10**30), 2**63, -(2**63) - 1, float("inf"), float("-inf"), float("nan"), 1e308]
)
@pytest.mark.parametrize("place", [place for place, bound in CHAIN.fields.items() if isinstance(bound, Number)])
def test_number_that_nothing_can_hold_is_named(place: str, number: float) -> None:
    assert CHAIN.fields[place].problem(number)


@pytest.mark.parametrize("bound", [b for b in CHAIN.fields.values() if isinstance(b, Number)])
def test_number_at_both_ends_fits_a_column_of_64_bits(bound: Number) -> None:
    assert bound.problem(bound.least) == bound.problem(bound.most) == ""
    assert -(2**63) <= bound.least <= bound.most < 2**63
    assert bound.problem(bound.least - 1)
    assert bound.problem(bound.most + 1)


STEERING = [
    chr(c)
    for c in (*range(0x20), *range(0x7F, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
]


@pytest.mark.parametrize("letter", [*STEERING, *map(chr, (0xD800, 0xDC80, 0xDFFF))], ids=ascii)
def test_text_with_a_control_is_refused(letter: str) -> None:
    problem = Text(100).problem(f"a{letter}b")
    assert problem
    assert letter not in problem, "the error itself is shown to people"


@given(st.text(max_size=30))
def test_text_allowed_steers_nothing(text: str) -> None:
    if not Text(30).problem(text):
        assert not set(text) & set(STEERING)
        text.encode()


@given(st.text(max_size=20) | st.text(st.characters(categories=["Cs", "Cc", "L"]), max_size=20))
def test_data_allowed_reaches_a_process_as_it_is(text: str) -> None:
    if Data(1_000).problem(text):
        assert "\0" in text or any("\ud800" <= each < "\udc80" or "\udcff" < each <= "\udfff" for each in text)
    else:
        assert text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text


def test_data_is_measured_in_bytes() -> None:
    assert Data(4).problem("éé") == ""
    assert Data(3).problem("éé")


def test_environment_is_bounded_in_all() -> None:
    environment = CHAIN.fields["request.batch.environment"]
    assert environment.problem((("A", "x" * 100_000),)) == ""
    assert environment.problem((("A", "x" * 200_000),))
    assert environment.problem(tuple((f"A{n}", "x" * 100_000) for n in range(20)))
    assert environment.problem((("A", "x"),) * 20_000)


def test_largest_environment_is_one_that_a_process_can_have() -> None:
    assert bounds.LARGEST_ENVIRONMENT * 2 <= 8 << 20 >> 2
