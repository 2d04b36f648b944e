"""Counts words that plain texts avoid, and long sentences. Run it with paths to list them.

``plain-words.txt`` has one rule per line: a regular expression (whole words, any case), a tab, the replacement.
A hit is no verdict: a word may be right where it names something else.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RULES = Path(__file__).with_name("plain-words.txt")
LONGEST_SENTENCE = 30
_FEWEST_WORDS = 3
"""A string of fewer is a key or a value, not a text."""
_SKIPPED = {"__pycache__", "assets", "build", "dist", "frozen", "openapi.json", "vendored", "venv"}
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_CODE = re.compile(r"``[^`\n]+``|`[^`\n]+`|\]\([^)\s]*\)|https?://\S+")
_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$", re.MULTILINE | re.DOTALL)
_OFF = re.compile(r"plain-words: off.*?(?:plain-words: on|\Z)", re.DOTALL)
_PARAGRAPH = re.compile(r"^(?!\s*(?:[#|]|:?---|$)).+(?:\n(?!\s*(?:[#|]|[-*+] |\d+\. |$)).+)*", re.MULTILINE)
_SENTENCE = re.compile(r"\S.*?(?:[.!?][*_\")]*(?=\s)|\Z)", re.DOTALL)
_COMMENT = re.compile(r"(?:#|(?:summary|description|title|label):)\s?(.*)")
_TITLE = re.compile(r'"(?:title|description|summary)":\s*"(.*)"')
_TAG = re.compile(r"\{#.*?#\}|\{[{%].*?[%}]\}|<(script|style)\b.*?</\1>|<[^>]+>", re.DOTALL)


class Found(NamedTuple):
    """One hit."""

    line: int
    text: str
    instead: str


class Count(NamedTuple):
    """Of some files."""

    words: int
    hits: tuple[tuple[Path, Found], ...]
    long: tuple[tuple[Path, Found], ...]
    sentences: tuple[int, ...] = ()
    """Words of each sentence (Markdown only)."""

    @property
    def rate(self) -> float:
        """Hits per 1,000 words."""
        return 1_000 * len(self.hits) / max(self.words, 1)


def rules() -> list[tuple[re.Pattern[str], str]]:
    """Each pattern with what to write instead; a space in a pattern is any white space."""
    rows = [line.split("\t", 1) for line in RULES.read_text().splitlines() if line]
    return [
        (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])".replace(" ", r"\s+"), re.IGNORECASE), instead)
        for pattern, instead in rows
    ]


def count(paths: Sequence[Path]) -> Count:
    """What the files and directories have of hits and of sentences that are too long (Markdown only)."""
    known, words = rules(), 0
    hits: list[tuple[Path, Found]] = []
    long: list[tuple[Path, Found]] = []
    lengths: list[int] = []
    for path in _files(paths):
        text = _OFF.sub(_blank, path.read_text(encoding="utf-8"))
        prose = _CODE.sub(_blank, _PROSE[path.suffix](text))
        words += len(_WORD.findall(prose))
        for rule, instead in known:
            hits += [(path, _found(prose, each, instead)) for each in rule.finditer(prose)]
        if path.suffix == ".md":
            for line, sentence in _sentences(prose):
                lengths.append(len(sentence))
                if len(sentence) > LONGEST_SENTENCE:
                    start = " ".join(sentence[:6])
                    long.append((path, Found(line, start, f"{len(sentence)} words: split it")))
    return Count(words, tuple(hits), tuple(long), tuple(lengths))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for base in paths:
        for path in sorted(base.rglob("*")) if base.is_dir() else [base]:
            parts = path.relative_to(base.parent).parts
            if path.suffix in _PROSE and not _SKIPPED.intersection(parts) and not parts[-1].startswith("."):
                yield path


def _sentences(prose: str) -> Iterator[tuple[int, list[str]]]:
    """The line and the words of each sentence."""
    for paragraph in _PARAGRAPH.finditer(prose):
        for sentence in _SENTENCE.finditer(paragraph[0]):
            line = prose.count("\n", 0, paragraph.start() + sentence.start()) + 1
            yield line, sentence[0].split()


def _found(prose: str, found: re.Match[str], instead: str) -> Found:
    return Found(prose.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), instead)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def _kept(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text with all but the spans blanked, so that lines keep their numbers."""
    kept = list(re.sub(r"[^\n]", " ", text))
    for start, end in spans:
        kept[start:end] = text[start:end]
    return "".join(kept)


def _of_python(text: str) -> str:
    """Comments, docstrings, and strings of some words, without what f-strings fill in."""
    starts, spans = [0, *accumulate(len(line) + 1 for line in text.split("\n"))], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_text = token.type == tokenize.STRING and len(_WORD.findall(token.string)) >= _FEWEST_WORDS
        if is_text or token.type == tokenize.COMMENT:
            spans.append((starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]))
    return re.sub(r"\{[^{}\n]*\}", _blank, _kept(text, spans))


def _of_lines(pattern: re.Pattern[str]) -> Callable[[str], str]:
    return lambda text: _kept(text, [each.span(1) for each in pattern.finditer(text)])


_PROSE: dict[str, Callable[[str], str]] = {
    ".md": lambda text: _FENCE.sub(_blank, text),
    ".j2": lambda text: _TAG.sub(_blank, text),
    ".py": _of_python,
    ".toml": _of_lines(_COMMENT),
    ".yml": _of_lines(_COMMENT),
    ".yaml": _of_lines(_COMMENT),
    ".json": _of_lines(_TITLE),
}


def main(arguments: Sequence[str]) -> int:
    """List what was found; exit status 1 if anything was."""
    found = count([Path(each) for each in arguments] or [Path()])
    lines = [f"{path}:{hit.line}: {hit.text!r}: {hit.instead}" for path, hit in (*found.hits, *found.long)]
    lines.append(f"{found.words} words, {found.rate:.1f} hits per 1,000, {len(found.long)} long sentences")
    sys.stdout.write("\n".join(lines) + "\n")
    return bool(found.hits or found.long)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
