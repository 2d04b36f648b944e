"""Batch scripts as ``sbatch`` reads them: what a script must look like, and the words of its directive lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirage.domain.errors import BadSpelling
from mirage.slurm.sbatchoptions import Word

SBATCH_LINE = "#SBATCH"
MIRAGE_LINE = "#MIRAGE"

_BLANK = " \t\v\f\r"
_OTHER_COMPONENT = re.compile(r"(?:hetjob|packjob)(?=\s|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Directives:
    """The words of all lines of a script that begin with one mark."""

    words: tuple[Word, ...]
    components: tuple[str, ...] = ()
    """Where lines begin components of a heterogeneous job."""


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


def read_directives(text: str, mark: str, name: str) -> Directives:
    """The words behind ``mark`` on the lines before the first command.

    Quotes group, a backslash takes the next character as it is (within quotes too; outside them a blank ends the
    word all the same), ``#`` begins a comment.
    Raises ``BadSpelling`` with the line for an open quote or a ``:``.
    """
    words: list[Word] = []
    components: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{name}:{number}"
        if line.startswith(mark):
            body = line[len(mark) :].lstrip(_BLANK)
            if _OTHER_COMPONENT.match(body):
                components.append(where)
            words += _split(body, where)
        elif _is_command(line):
            break
    return Directives(tuple(words), tuple(components))


def foreign_line(text: str) -> int:
    """The first line (from 1) with a directive of another batch system that ``sbatch`` would obey; 0: none."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(("#PBS", "#BSUB")):
            return number
        if _is_command(line):
            break
    return 0


def _is_command(line: str) -> bool:
    bare = line.strip(_BLANK)
    return bool(bare) and not bare.startswith("#")


def _split(body: str, where: str) -> list[Word]:
    words: list[Word] = []
    rest = body
    while True:
        rest = rest.lstrip(_BLANK)
        if rest.startswith(":"):
            raise BadSpelling(body, f"{where}: unexpected ':'")
        if _OTHER_COMPONENT.match(rest):
            return words
        word, rest = _take_word(rest, body, where)
        if not word:  # an empty word ends the line for sbatch, even one in quotes
            return words
        words.append(Word(word, where))


def _take_word(rest: str, body: str, where: str) -> tuple[str, str]:
    """The first word of ``rest`` and what follows it."""
    letters: list[str] = []
    quote, escaped, at = "", False, 0
    while at < len(rest) and (quote or rest[at] not in _BLANK):
        letter = rest[at]
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
    return "".join(letters), rest[at:]
