"""What a user may name, and how large it may be: one table for the API, ``#MIRAGE`` lines and the configuration.

Bounds are checked where a value enters. What is stored already is read whatever its size, but for a script
whose directives or first line are beyond their bounds: where Mirage itself reads these, it rejects the
submission. Times are bounded as well: here is their text form, too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import BadSpelling
from mirage.domain.job import HIGHEST_JOB_ID, NO_RESOURCE_LIMIT, UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.job import Seconds

YEAR = UNLIMITED
"""Seconds; the longest duration of one job, of a pause, of a grace period."""
LONGEST_SPAN = 100 * YEAR
"""Seconds; how long anything may continue, or be kept."""
HIGHEST_COUNT = 1_000_000_000
"""Of anything that is counted or priced."""
HIGHEST_FACTOR = 1_000_000
"""Bound of a factor, such as the rate of a simulated clock."""
LATEST = 2**32 - 1
"""The latest time that may be named, in the year 2106."""
MOST_NODES = 1_000_000
MOST_LINKS = 1_000_000
MOST_WORKERS = 4_096
"""Number of processes at the same time."""
HIGHEST_SEED = 2**32 - 1
"""Range that every random number generator accepts."""
HIGHEST_NICE = 2_147_483_645
"""Slurm's NICE_OFFSET less 3; below 0 is for operators."""
LONGEST_NAME = 256
"""Characters of a name: of a chain, a job, a partition, an account."""
LONGEST_PATH = 4_096
"""Characters; PATH_MAX."""
_LONGEST_FILE_NAME = 255
"""Bytes; NAME_MAX."""
LONGEST_WORD = 128 << 10
"""Bytes of one argument or variable, as the kernel takes it (MAX_ARG_STRLEN)."""
LARGEST_SCRIPT = 4 << 20
"""Bytes; Slurm's default of max_script_size."""
LONGEST_FIRST_LINE = 255
"""Bytes of a script's first line; with its end, as many as the kernel reads of it (BINPRM_BUF_SIZE)."""
LARGEST_DIRECTIVES = 64 << 10
"""Characters of all lines of one kind, such as ``#SBATCH``, in a script."""
MOST_DIRECTIVES = 1_000
"""Such lines."""
MOST_DIRECTIVE_WORDS = 4_000
"""Words in them that blanks separate."""
LARGEST_ENVIRONMENT = 1 << 20
"""Bytes of all variables and arguments together: half of what the kernel takes with a stack of 8 MiB."""
LARGEST_OPTIONS = 64 << 10
"""Bytes of all options for ``sbatch`` together; unlike scripts they stay in the memory of the daemon."""

# Controls (C0, DEL, C1), line separators and the marks that turn the direction of a text around: what is shown to
# others must neither command a terminal nor look like something else.
STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_STRAY_BYTE = re.compile("[\udc80-\udcff]")
_SHOWN = 80


_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols, to Unicode, that show nothing."""


_JOINERS = "\u200c\u200d"
"""Within words of some scripts, and within emoji, they decide how the characters around them look."""


def _is_visible(character: str) -> bool:
    return character.isprintable() and not character.isspace() and character not in _BLANK


def _hidden(text: str) -> str:
    """The first character that shows nothing and is no space: by it two texts can differ that look alike."""
    for before, character in zip(" " + text, text, strict=False):
        joins = character in _JOINERS and not before.isascii()
        if not (_is_visible(character) or character.isspace() or joins):
            return character
    return ""


@dataclass(frozen=True, slots=True)
class Number:
    """A number in the closed range from ``least`` to ``most``."""

    least: float
    most: float

    def problem(self, value: Any) -> str:
        """Why ``value`` is not allowed; empty: it is."""
        if isinstance(value, float) and not math.isfinite(value):
            return "expected a finite number"
        return "" if self.least <= value <= self.most else f"expected {self.least:.15g} to {self.most:.15g}"


@dataclass(frozen=True, slots=True)
class Text:
    """A bounded text that is shown to users."""

    longest: int
    """Characters."""
    visible: bool = False
    """Whether a reader has to see something of it, and every character that distinguishes it from others."""

    def problem(self, value: str) -> str:
        """Why ``value`` is not allowed; empty: it is."""
        if len(value) > self.longest:
            return f"expected at most {self.longest} characters, not {len(value)}"
        if found := _SURROGATE.search(value) or STEERING.search(value):
            fault = "is not UTF-8" if _SURROGATE.match(found[0]) else "holds a control character"
            return f"{value[:_SHOWN]!r} {fault}"
        if self.visible and not any(map(_is_visible, value)):
            return f"{value[:_SHOWN]!r} shows nothing; give a name with a letter or digit"
        if self.visible and (hidden := _hidden(value)):
            return f"{value[:_SHOWN]!r} holds the invisible character U+{ord(hidden):04X}"
        return ""


@dataclass(frozen=True, slots=True)
class Data:
    """Any bytes but NUL; those that are no UTF-8 are written as Python does (surrogateescape)."""

    longest: int
    """Bytes."""

    def problem(self, value: str) -> str:
        """Why ``value`` is not allowed; empty: it is."""
        if "\0" in value:
            return "holds a NUL character"
        try:
            size = len(value.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            return "is not UTF-8"
        return "" if size <= self.longest else f"expected at most {self.longest} bytes, not {size}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values that belong together."""

    first: Bound
    second: Bound

    def problem(self, value: tuple[Any, Any]) -> str:
        """Why one of them is not allowed; empty: both are."""
        return self.first.problem(value[0]) or self.second.problem(value[1])


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass with a bound for each of its fields."""

    fields: Mapping[str, Bound]

    def problem(self, value: Any) -> str:
        """The first field that is not allowed, and why; empty: all are."""
        for place, bound in self.fields.items():
            found = _at(value, place)
            if found is not None and (problem := bound.problem(found)):
                return f"{place}: {problem}"
        return ""


@dataclass(frozen=True, slots=True)
class Many:
    """A list with a bounded number of items and bytes."""

    most: int
    each: Bound
    bytes_in_all: int = 1 << 30
    """Of its texts."""

    def problem(self, value: tuple[Any, ...]) -> str:
        """Why it, or one within, is not allowed; empty: all are."""
        if len(value) > self.most:
            return f"expected at most {self.most}, not {len(value)}"
        for number, item in enumerate(value):
            if problem := self.each.problem(item):
                return f"{number}: {problem}"
        size = sum(map(_size, value))
        return (
            "" if size <= self.bytes_in_all else f"expected at most {self.bytes_in_all} bytes in all, not {size}"
        )


Bound = Number | Text | Data | Pair | Record | Many

SECONDS = Number(0, YEAR)
NAME = Text(LONGEST_NAME)
PATH = Text(LONGEST_PATH)
_WORDS = Many(64, NAME)
_RETRIES = Number(0, MOST_LINKS)
_JOB_ID = Number(0, HIGHEST_JOB_ID)
_SIGNAL = Text(32)

CHAIN = Record(
    {
        "chain_id": Text(64),
        "name": Text(LONGEST_NAME, visible=True),
        "owner": NAME,
        "request.name": NAME,
        "request.user": NAME,
        "request.limit": Number(1, YEAR),
        "request.nodes": Number(1, MOST_NODES),
        "request.partition": Text(1_024),
        "request.account": NAME,
        "request.qos": NAME,
        "request.cpus_per_node": Number(0, 1_000_000),
        "request.memory_mb_per_node": Number(0, 1_000_000_000),
        "request.gres_per_node": Many(64, Pair(NAME, Number(0, 1_000_000))),
        "request.features": _WORDS,
        "request.begin": Number(0, LATEST),
        "request.nice": Number(0, HIGHEST_NICE),
        "request.dependencies": Many(1_000, Record({"job_id": _JOB_ID, "delay": SECONDS})),
        "request.reservation": Text(1_024),
        "request.node_list": Text(65_536),
        "request.warn.name": _SIGNAL,
        "request.warn.lead": Number(0, 65_535),
        "request.tag": NAME,
        "request.batch.text": Data(LARGEST_SCRIPT),
        "request.batch.options": Many(256, Text(LONGEST_WORD // 4), LARGEST_OPTIONS),
        "request.batch.environment": Many(
            10_000, Pair(Data(4_096), Data(LONGEST_WORD - 4_100)), LARGEST_ENVIRONMENT
        ),
        "request.batch.directory": PATH,
        "request.batch.arguments": Many(10_000, Data(LONGEST_WORD - 1), LARGEST_ENVIRONMENT // 2),
        "request.batch.umask": Number(0, 0o777),
        "request.batch.resource_limits": Many(16, Pair(Text(16), Number(NO_RESOURCE_LIMIT, 2**63 - 1))),
        "request.batch.process_nice": Number(-20, 19),
        "done.exit_code": Number(0, 255),
        "done.file": PATH,
        "done.links": Number(0, MOST_LINKS),
        "done.total_time": Number(0, LONGEST_SPAN),
        **{
            f"failures.{kind}.{field}": bound
            for kind in ("exit", "node", "cancelled")
            for field, bound in (("retries", _RETRIES), ("backoff", SECONDS))
        },
        "handover.signal.name": _SIGNAL,
        "handover.signal.lead": SECONDS,
        "handover.max_overlap": SECONDS,
        "lead": SECONDS,
        "predictor": NAME,
        "aim.value": SECONDS,
        "tasks_state": PATH,
    }
)
"""A chain as its owner describes it."""
REQUEST = Record(
    {name.removeprefix("request."): bound for name, bound in CHAIN.fields.items() if name.startswith("request.")}
)
"""The job that a chain repeats."""


def path_problem(path: str) -> str:
    """Why no file can have this absolute path; empty: one can."""
    if not path.startswith("/"):
        return "expected an absolute path"
    if _CONTROL.search(path):
        return "holds control characters"
    try:
        encoded = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "no file can have this name"
    if len(encoded) > LONGEST_PATH - 1:
        return f"longer than {LONGEST_PATH - 1} bytes"
    if any(len(name) > _LONGEST_FILE_NAME for name in encoded.split(b"/")):
        return f"a name in it is longer than {_LONGEST_FILE_NAME} bytes"
    return ""


def _at(value: Any, place: str) -> Any:
    """The field of that dotted name; ``None`` where it, or what it belongs to, is not given."""
    for name in place.split("."):
        if value is None:
            return None
        value = getattr(value, name)
    return value


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogateescape")) + 1
    return sum(map(_size, value)) if isinstance(value, tuple) else 0


_LAST = 253_402_300_799  # the end of the year 9999
_MOST_DIGITS = 18


def format_instant(seconds: Seconds) -> str:
    """Epoch seconds as RFC 3339 has them in UTC, ``2026-11-21T14:36:00Z``; beyond the calendar the bare number."""
    if not 0 <= seconds <= _LAST:
        return str(seconds)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_instant(text: str) -> Seconds:
    """Epoch seconds of a date, a date and time (UTC unless it says otherwise), or of epoch seconds.

    Raises ``BadSpelling`` for anything else, and for times before 1970 or after 2106.
    """
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        seconds = int(text)
    else:
        try:
            instant = datetime.fromisoformat(text)
            seconds = int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
        except ValueError:
            problem = "expected a date such as 2023-02-01 or 2023-02-01T12:00, or epoch seconds"
            raise BadSpelling(text, problem) from None
    if not 0 <= seconds <= LATEST:
        raise BadSpelling(text, f"expected a time from 1970 to {format_instant(LATEST)}")
    return seconds
