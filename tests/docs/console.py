"""The commands that a document shows, and the output that it shows for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Typed:
    """One command and the first line of its answer."""

    command: str
    answer: str
    """Empty: none is shown."""

    def check(self, said: str) -> None:
        """That the answer begins as it is shown: a heading with the same words, else the same first word.

        Where something changes from run to run the document has three dots.
        """
        if not self.answer:
            return
        found, shown = said.strip().partition("\n")[0].split(), self.answer.split()
        if not shown[0].isupper():
            shown = shown[:1]
        elif shown[-1] == "...":
            shown.pop()
        constant = [word.partition("...")[0] for word in shown]
        assert len(found) >= len(shown), f"{self.command}: {said}"
        for word, beginning in zip(found, constant, strict=False):
            assert word.startswith(beginning), f"{self.command}: {said}"


def typed(text: str, heading: str) -> Iterator[Typed]:
    """The commands of a section, in order."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    for block in _BLOCK.findall(section):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, answer = part.partition("\n")
            yield Typed(command, answer.partition("\n")[0])
