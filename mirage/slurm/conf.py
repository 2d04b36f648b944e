r"""The text of slurm.conf, gres.conf and their like: settings and records, no meaning and no IO.

The syntax is that of Slurm's own parser (man slurm.conf; src/common/parse_config.c):

- ``Key=Value`` pairs, several to a line; keys are case-insensitive; a value is a word or ``"quoted"``.
- ``#`` starts a comment except as ``\#``; a line that ends in ``\``, or an odd number of them, continues in the
  next.
- A line whose first key is NodeName, PartitionName, DownNodes, NodeSet, FrontendName or (gres.conf) Name
  is a record: all its pairs belong together. Every other pair is a separate setting; the last one wins.
- ``Include FILE`` is read in place; ``%c`` in its path is the ClusterName.

Nothing is dropped: keys that Mirage does not know are kept, with file and line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mirage.domain.errors import BadSpelling, ConfigError

ENFORCED = frozenset({"limits", "safe", "all"})
"""man slurm.conf, AccountingStorageEnforce: the words by which limits hold."""
FILE = "slurm_conf"
"""The setting that names the file which Slurm has read."""


def read_settings(text: str) -> dict[str, str]:
    """Every setting by its name in lower case; of one that is printed twice the first counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip():
            found.setdefault(name.strip().lower(), value.strip())
    return found


_VERSION = re.compile(r"(?<![0-9])([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?")


def read_version(text: str) -> tuple[int, int]:
    """Year and month of a Slurm release such as ``slurm-wlm 22.05.8``. Raises ``BadSpelling``."""
    match = _VERSION.search(text)
    if match is None:
        raise BadSpelling(text, "expected a version such as slurm 22.05.8")
    return int(match[1]), int(match[2])


RECORD_KEYS = frozenset({"nodename", "partitionname", "downnodes", "nodeset", "frontendname", "name"})
MAX_INCLUDE_DEPTH = 10

Include = Callable[[str, str], tuple[str, str]]
"""(path as written, place of the Include line) -> (file name for messages, its text)."""

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*[-+*/]?=[ \t]*(?:"([^"]*)"|(\S*))(?=\s|$)')
_INCLUDE = re.compile(r"\s*+include\s++(.*\S)", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*$")


@dataclass(frozen=True, slots=True)
class ConfSetting:
    """One ``Key=Value`` pair and where it stands; ``key`` is written as in the file."""

    key: str
    value: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """``file:line: Key``, for messages."""
        return f"{self.file}:{self.line}: {self.key}"

    def fault(self, problem: str) -> ConfigError:
        """A ``ConfigError`` at this pair."""
        return ConfigError(self.where, problem)

    def integer(self, low: int, high: int) -> int:
        """The value as a whole number within ``low..high``; raises ``ConfigError``."""
        return whole_number(self.value, self.where, low, high)

    def flag(self) -> bool:
        """YES/NO (also TRUE, UP, 1 and their opposites, as in Slurm); raises ``ConfigError``."""
        word = self.value.lower()
        if word in ("yes", "up", "true", "1"):
            return True
        if word in ("no", "down", "false", "0"):
            return False
        raise self.fault(f"expected YES or NO, found {self.value!r}")

    def words(self) -> tuple[str, ...]:
        """The value's comma-separated parts, blanks removed, empty parts left out."""
        return tuple(part for part in (p.strip() for p in self.value.split(",")) if part)


@dataclass(frozen=True, slots=True)
class ConfRecord:
    """One record line: the pair that opens it and all its pairs in order."""

    kind: str
    """The opening key in lower case, such as ``nodename``."""
    name: str
    settings: tuple[ConfSetting, ...]
    """Includes the opening pair."""

    @property
    def where(self) -> str:
        """The place and name of the record, as ``file:line: Key=Name``."""
        return f"{self.settings[0].where}={self.name}"

    def get(self, *keys: str) -> ConfSetting | None:
        """The last pair with one of these keys (any case); None where absent."""
        return _last(self.settings, keys)


@dataclass(frozen=True, slots=True)
class ConfText:
    """A whole configuration file with its includes."""

    file: str
    settings: tuple[ConfSetting, ...]
    records: tuple[ConfRecord, ...]

    def get(self, *keys: str) -> ConfSetting | None:
        """The last setting with one of these keys (any case), as Slurm takes it; None where absent."""
        return _last(self.settings, keys)

    def of_kind(self, kind: str) -> tuple[ConfRecord, ...]:
        """The records opened by this key (lower case), in file order."""
        return tuple(record for record in self.records if record.kind == kind)


def whole_number(text: str, where: str, low: int, high: int) -> int:
    """``text`` as a whole number within ``low..high``; raises ``ConfigError`` at ``where``."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise ConfigError(where, f"expected a whole number, found {text!r}")
    number = int(text)
    if not low <= number <= high:
        raise ConfigError(where, f"{number} is outside {low}..{high}")
    return number


def parse(text: str, file: str, include: Include | None = None) -> ConfText:
    """Parse one file. ``include`` fetches included files; without it an Include line is an error.

    Raises ``ConfigError`` naming file and line for text that is not ``Key=Value``, and for includes that
    include themselves.
    """
    settings: list[ConfSetting] = []
    records: list[ConfRecord] = []
    _parse_into(settings, records, text, file, include, 0)
    return ConfText(file, tuple(settings), tuple(records))


def _parse_into(
    settings: list[ConfSetting],
    records: list[ConfRecord],
    text: str,
    file: str,
    include: Include | None,
    depth: int,
) -> None:
    for number, line in _logical_lines(text):
        where = f"{file}:{number}"
        if match := _INCLUDE.match(line):
            path = match[1].strip('"').replace("%c", _cluster_name(settings))
            name, included = _fetch(path, where, include, depth)
            _parse_into(settings, records, included, name, include, depth + 1)
            continue
        pairs = _pairs(line, file, number)
        if pairs and pairs[0].key.lower() in RECORD_KEYS:
            records.append(ConfRecord(pairs[0].key.lower(), pairs[0].value, pairs))
        else:
            settings.extend(pairs)


def _fetch(path: str, where: str, include: Include | None, depth: int) -> tuple[str, str]:
    if include is None:
        raise ConfigError(where, f"Include {path}: nothing can be included into a text without a directory")
    if depth >= MAX_INCLUDE_DEPTH:
        problem = f"Include {path}: more than {MAX_INCLUDE_DEPTH} levels deep; does a file include itself?"
        raise ConfigError(where, problem)
    return include(path, where)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments, continuations joined, with the number of their first physical line."""
    lines: list[tuple[int, str]] = []
    pending, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        bare = _COMMENT.sub("", raw).rstrip()
        first = first or number
        if (len(bare) - len(bare.rstrip("\\"))) % 2:  # joined as they are, so that a value may continue
            pending += bare[:-1]
            continue
        whole = (pending + bare).replace(r"\#", "#")
        if whole.strip():
            lines.append((first, whole))
        pending, first = "", 0
    if pending.strip():
        lines.append((first, pending.replace(r"\#", "#")))
    return lines


def _pairs(line: str, file: str, number: int) -> tuple[ConfSetting, ...]:
    pairs: list[ConfSetting] = []
    position = 0
    while line[position:].strip():
        match = _PAIR.match(line, position)
        if match is None:
            rest = line[position:].strip()
            raise ConfigError(f"{file}:{number}", f"expected Key=Value, found {_short(rest)!r}")
        value = match[2] if match[2] is not None else match[3]
        pairs.append(ConfSetting(match[1], value, file, number))
        position = match.end()
    return tuple(pairs)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _last(settings: tuple[ConfSetting, ...], keys: tuple[str, ...]) -> ConfSetting | None:
    wanted = {key.lower() for key in keys}
    return next((s for s in reversed(settings) if s.key.lower() in wanted), None)


def _cluster_name(settings: list[ConfSetting]) -> str:
    named = _last(tuple(settings), ("clustername",))
    return named.value.lower() if named else "%c"
