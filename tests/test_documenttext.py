"""JSON from outside: what would become too many objects is rejected before any is made."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from mirage.documentreading import MOST_PARTS, parse_json

MANY = 2 * MOST_PARTS


@pytest.mark.parametrize("value", ["{}", "[]", "0", '""', "[[]]", '{"a":1}', "null", '"\\\\"', '"\\""'])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_json_of_many_values_is_rejected_cheaply(value: str, encoding: str) -> None:
    text = f"[{','.join([value] * MANY)}]".encode(encoding)
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than"):
        parse_json(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(text) + (1 << 20)


@pytest.mark.parametrize("told", [",[{" * MANY, '\\"' * MANY, "\\" * 3 * MANY + '"{},[]', "Ģ" * MANY])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_json_text_within_a_string_does_not_count(told: str, encoding: str) -> None:
    assert parse_json(json.dumps([told, {"a": told}], ensure_ascii=False).encode(encoding)) == [told, {"a": told}]


@pytest.mark.parametrize("cut", ['["', '["\\', '{"a":"\\"'])
def test_json_string_without_end_is_an_error(cut: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        parse_json(cut + "," * MANY)


def test_json_of_a_trusted_source_has_no_bound() -> None:
    assert len(parse_json(b"[" + b"0," * MANY + b"0]", most=None)) == MANY + 1
