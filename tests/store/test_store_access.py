"""Tokens and answers in the database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.store.access import AuditEntry, StoredAnswer, StoredToken

if TYPE_CHECKING:
    import pytest

    from mirage.store.opening import Store

TOKEN = StoredToken("ab12", "ada", "notebook", "read", b"\x00" * 32, 100, 0)
ANSWER = StoredAnswer("ada", "k1", 1_000, b"\x01" * 32, 201, "[]", b'{"id": "x"}')


def test_tokens_are_kept_touched_and_removed(store: Store) -> None:
    other = replace(TOKEN, token_id="cd34", created=50, expires=900, label="it's \0 mine")
    store.tokens.add(TOKEN)
    store.tokens.add(other)
    assert [token.token_id for token in store.tokens.load()] == ["cd34", "ab12"]
    store.tokens.touch({"ab12": 777, "gone": 1})
    assert store.tokens.load()[1] == replace(TOKEN, used=777)
    store.tokens.remove("cd34")
    store.tokens.remove("cd34")
    assert [token.token_id for token in store.tokens.load()] == ["ab12"]


def test_answers_are_found_for_a_day_and_by_their_caller_only(store: Store) -> None:
    store.answers.keep(ANSWER, 0)
    assert store.answers.find("ada", "k1", 1_000) == ANSWER
    assert store.answers.find("bob", "k1", 0) is None
    assert store.answers.find("ada", "k1", 1_001) is None
    newer = replace(ANSWER, key="k2", time=2_000)
    store.answers.keep(newer, 1_500)
    assert store.answers.find("ada", "k1", 0) is None, "what is too old goes as the next one comes"
    store.answers.keep(replace(newer, status=200), 0)
    found = store.answers.find("ada", "k2", 0)
    assert found is not None
    assert found.status == 200


def test_the_audit_says_how_somebody_came_in(store: Store) -> None:
    store.audit.write(AuditEntry(1, "ada", -1, "pause", None, "done", "token ab12"))
    store.audit.write(AuditEntry(2, "ada", 7, "submit", None, "done"))
    assert [line.entry.how for line in store.audit.read()] == ["", "token ab12"]


def test_answers_of_one_caller_are_bounded_and_push_out_no_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.store.access.MOST_OF_ONE", 5)
    store.answers.keep(replace(ANSWER, caller="ada"), 0)
    for number in range(20):
        store.answers.keep(replace(ANSWER, caller="mallory", key=f"k{number}", time=2_000 + number), 0)
    kept = [number for number in range(20) if store.answers.find("mallory", f"k{number}", 0)]
    assert kept == [15, 16, 17, 18, 19]
    assert store.answers.find("ada", "k1", 0) == ANSWER


def test_answers_of_one_caller_have_a_bound_in_bytes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.store.access.MOST_BYTES_OF_ONE", 100)
    for number in range(9):
        large = replace(ANSWER, key=f"k{number}", time=2_000 + number, body=b"x" * 30)
        store.answers.keep(large, 0)
    assert [number for number in range(9) if store.answers.find("ada", f"k{number}", 0)] == [6, 7, 8]
