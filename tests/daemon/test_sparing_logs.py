"""Lines of log that say the same too often are counted."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from mirage.daemon.logs import MOST_AT_ONCE, JsonLines, KeyValues, SparingHandler
from mirage.domain.bounds import STEERING


class Log:
    def __init__(self) -> None:
        self.now = 0.0
        self.stream = io.StringIO()
        self.handler = SparingHandler(self.stream, lambda: self.now)
        self.handler.setFormatter(KeyValues())

    def say(self, text: str, *args: object, caller: str = "", always: bool = False) -> None:
        record = logging.LogRecord("mirage.x", logging.WARNING, "x.py", 1, text, args, None)
        record.fields = {"caller": caller} if caller else {}
        record.always = always
        self.handler.emit(record)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_log_of_one_user_is_bounded_and_others_are_still_written() -> None:
    log = Log()
    for number in range(10_000):
        log.say("request %08x of %d has failed", number, number, caller="mallory")
    assert len(log.lines) == MOST_AT_ONCE
    log.say("request %08x of %d has failed", 1, 1, caller="ada")
    log.say("something else")
    assert [line for line in log.lines if "caller=ada" in line or "something" in line] == log.lines[-2:]


def test_log_lines_left_out_are_counted_in_one_line() -> None:
    log = Log()
    for _ in range(1_000):
        log.say("again")
    log.now = 61
    log.say("again")
    assert len(log.lines) == MOST_AT_ONCE + 2
    assert f"left-out={1_000 - MOST_AT_ONCE}" in log.lines[-2]
    for _ in range(10):
        log.say("again")
    log.now = 10_000
    log.say("something else")
    assert "left-out=10" in log.lines[-2]


def test_log_lines_at_the_pace_of_cycles_are_all_written() -> None:
    log = Log()
    for cycle in range(1_000):
        log.now = 60.0 * cycle
        log.say("the cluster does not answer, %d in a row", cycle)
    assert len(log.lines) == 1_000


def test_log_remembers_few_kinds_of_lines() -> None:
    log = Log()
    for kind in range(3_000):
        word = "".join(chr(ord("g") + int(digit)) for digit in str(kind))
        for _ in range(MOST_AT_ONCE + 1):
            log.say(word)
    assert len(log.handler._left_out) <= 1_000


def test_log_leaves_out_no_line_of_the_audit() -> None:
    log = Log()
    for _ in range(500):
        log.say("event=audit_entry_not_stored user=ada", always=True)
    assert len(log.lines) == 500


def test_log_counts_lines_alike_whatever_their_texts() -> None:
    log = Log()
    for word in range(500):
        record = logging.LogRecord(
            "mirage.requests", logging.INFO, "x.py", 1, "GET /%s", (chr(0x4E00 + word),), None
        )
        record.alike = "refused ada"
        log.handler.emit(record)
    assert len(log.lines) == MOST_AT_ONCE


@pytest.mark.parametrize("form", [KeyValues(), JsonLines()])
@pytest.mark.parametrize("text", ["\x9b31m", "a \u202e b", "\u2066x", "\x1b[31m", "a\u2028b", "\x7f"])
def test_log_line_of_any_form_holds_no_control(form: logging.Formatter, text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        record = logging.LogRecord("mirage.x", logging.INFO, "x.py", 1, "%s", (text,), sys.exc_info())
    record.fields = {"chain": text}
    assert not STEERING.search(form.format(record).replace("\n", ""))
