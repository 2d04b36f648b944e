"""Batch scripts as ``sbatch`` reads them: their form, their directives, and those that affect Slurm's plan."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from typing import TYPE_CHECKING

from mirage.domain.bounds import LARGEST_DIRECTIVES, LONGEST_FIRST_LINE, MOST_DIRECTIVE_WORDS, MOST_DIRECTIVES
from mirage.domain.errors import BadSpelling
from mirage.domain.script import StoredScript
from mirage.slurm.sbatchoptions import Word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.job import BatchScript

_DIRECTIVE = "#SBATCH"
_OPTION = "SBATCH_"


def plan_settings(batch: BatchScript) -> str:
    """A digest of the ``#SBATCH`` lines and the ``SBATCH_`` variables; equal for equal ones."""
    if isinstance(batch, StoredScript):
        return batch.reference.plan_settings
    variables = (f"{name}={value}" for name, value in batch.environment if name.startswith(_OPTION))
    told = "\0".join(("".join(_plan_directives(batch.text)), *variables))
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def _plan_directives(script: str) -> Iterator[str]:
    """The lines for ``sbatch``; like it, this reads no further than the first command."""
    for line in StringIO(script):
        if line.startswith(_DIRECTIVE):
            yield line
        elif line.strip() and not line.startswith("#"):
            return


SBATCH_LINE = "#SBATCH"
MIRAGE_LINE = "#MIRAGE"

_BLANK = " \t\v\f\r"
_COMMAND = re.compile(r"^[ \t\v\f\r]*+[^# \t\v\f\r\n]", re.MULTILINE)
_GAP = re.compile(r"[ \t]+")
_FOREIGN = re.compile(r"^#(?:PBS|BSUB)", re.MULTILINE)
_OTHER_COMPONENT = re.compile(r"(?:hetjob|packjob)(?=\s|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Directives:
    """The words of all lines of a script that begin with one mark."""

    words: tuple[Word, ...]
    components: tuple[str, ...] = ()
    """Lines at which components of a heterogeneous job begin."""


def check_script(text: str, name: str) -> None:
    """Raise ``BadSpelling`` for what ``sbatch`` would not take for a batch script."""
    if not text.strip():
        raise BadSpelling(name, "the batch script is empty")
    if not text.startswith("#!"):
        raise BadSpelling(name, "is no batch script: its first line must name an interpreter, as #!/bin/sh does")
    if "\0" in text:
        raise BadSpelling(name, "is no batch script: it holds a NUL byte")
    if "\r\n" in text:
        raise BadSpelling(name, "has DOS line ends (\\r\\n), which no interpreter takes; see dos2unix")
    check_bounds(text, name)


def check_bounds(text: str, name: str) -> None:
    """Raise ``BadSpelling`` for a first line or ``#SBATCH`` lines that are longer than what is read of them."""
    if text.startswith("#!"):
        _first_line(text, name)
    for _ in _directives(text, SBATCH_LINE, name):
        pass


def read_interpreter(text: str, name: str) -> tuple[str, ...]:
    """As the kernel reads the first line: a path and at most one argument, blanks and all.

    Raises ``BadSpelling`` for a line that names no interpreter, and for one that the kernel would cut.
    """
    line = _first_line(text, name)
    path, *arguments = _GAP.split(line.removeprefix("#!").strip(" \t"), maxsplit=1)
    if not line.startswith("#!") or not path:
        raise BadSpelling(name, "is no batch script: its first line must name an interpreter, as #!/bin/sh does")
    return path, *arguments


def read_directives(text: str, mark: str, name: str) -> Directives:
    """The words behind ``mark`` on the lines before the first command.

    Quotes group, a backslash takes the next character as it is (within quotes too; outside them a blank ends the
    word all the same), ``#`` begins a comment.
    Raises ``BadSpelling`` with the line for an open quote or a ``:``.
    """
    words: list[Word] = []
    components: list[str] = []
    for where, line in _directives(text, mark, name):
        body = line.lstrip(_BLANK)
        if _OTHER_COMPONENT.match(body):
            components.append(where)
        words += _split(body, where)
    return Directives(tuple(words), tuple(components))


def sbatch_lines(text: str, name: str) -> str:
    """The ``#SBATCH`` lines of a script, unchanged. Raises ``BadSpelling`` for more than are read."""
    return "".join(f"{SBATCH_LINE}{rest}\n" for _, rest in _directives(text, SBATCH_LINE, name))


def has_directives(text: str, mark: str) -> bool:
    """Whether a line before the first command begins with ``mark``."""
    return re.compile(f"^{re.escape(mark)}", re.MULTILINE).search(text, 0, _end_of_head(text)) is not None


def foreign_line(text: str) -> int:
    """The first line (from 1) with a directive of another batch system that ``sbatch`` would apply; 0: none."""
    found = _FOREIGN.search(text, 0, _end_of_head(text))
    return text.count("\n", 0, found.start()) + 1 if found else 0


def _first_line(text: str, name: str) -> str:
    line = text[: LONGEST_FIRST_LINE + 1].partition("\n")[0]
    if len(line.encode(errors="replace")) > LONGEST_FIRST_LINE:
        problem = f"its first line is longer than {LONGEST_FIRST_LINE} bytes, of which the kernel reads no more"
        raise BadSpelling(name, f"{problem}; shorten the interpreter's path or argument")
    return line


def _directives(text: str, mark: str, name: str) -> Iterator[tuple[str, str]]:
    """Place of each line before the first command that begins with ``mark``, and what follows the mark."""
    number, counted, size, lines, words = 1, 0, 0, 0, 0
    pattern = re.compile(f"^{re.escape(mark)}(.*)", re.MULTILINE)
    for found in pattern.finditer(text, 0, _end_of_head(text)):
        number += text.count("\n", counted, found.start())
        counted = found.start()
        size, lines, words = size + len(found[0]), lines + 1, words + len(found[1].split())
        if size > LARGEST_DIRECTIVES or lines > MOST_DIRECTIVES or words > MOST_DIRECTIVE_WORDS:
            most = f"{MOST_DIRECTIVES:,} lines, {MOST_DIRECTIVE_WORDS:,} words, {LARGEST_DIRECTIVES:,} characters"
            raise BadSpelling(name, f"line {number}: too many {mark} directives; at most {most} are read")
        yield f"{name}:{number}", found[1]


def _end_of_head(text: str) -> int:
    """Position of the first line that is neither blank nor a comment."""
    command = _COMMAND.search(text)
    return command.start() if command else len(text)


def _split(body: str, where: str) -> list[Word]:
    words: list[Word] = []
    at = 0
    while True:
        while at < len(body) and body[at] in _BLANK:
            at += 1
        if body.startswith(":", at):
            raise BadSpelling(body, f"{where}: unexpected ':'")
        if _OTHER_COMPONENT.match(body, at):
            return words
        word, at = _take_word(body, at, where)
        if not word:  # an empty word ends the line for sbatch, even one in quotes
            return words
        words.append(Word(word, where))


def _take_word(body: str, at: int, where: str) -> tuple[str, int]:
    """The word that begins at ``at``, and where it ends."""
    letters: list[str] = []
    quote, escaped = "", False
    while at < len(body) and (quote or body[at] not in _BLANK):
        letter = body[at]
        at += 1
        if escaped:
            letters.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif quote and letter == quote:
            quote = ""
        elif not quote and letter in "\"'":
            quote = letter
        elif not quote and letter == "#":
            at -= 1
            break
        else:
            letters.append(letter)
    if quote:
        raise BadSpelling(body, f"{where}: the {quote} is never closed")
    return "".join(letters), at
