"""Where commands leave their results: files that options name, and stdout where one is called ``-``."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.usage import UsageError
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

DocumentOut = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Write the document of --json to FILE.")
]
STDOUT = "-"


def check_writable(option: str, name: str) -> None:
    """Raise ``ConfigError`` where ``name`` cannot become a file: better now than after the work."""
    if name in {"", "-"}:
        return
    path = Path(name)
    if path.is_dir():
        raise ConfigError(option, f"{name} is a directory")
    if not path.parent.is_dir():
        raise ConfigError(option, f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(option, f"{name} may not be written")


def write_text(name: str, text: str) -> None:
    """Into a file, or to stdout where it is called ``-``."""
    if name == "-":
        typer.echo(text, nl=False)
    else:
        Path(name).write_text(text, encoding="utf-8")


def write_json(name: str, document: Any) -> None:
    """As ``write_text``."""
    write_text(name, json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class Report:
    """The forms of one comparison, each under the name of its file; empty: it is not wanted."""

    as_json: bool
    """The document is wanted on stdout."""
    output: str
    """File of the document."""
    markdown: str = ""
    html: str = ""

    def check(self) -> None:
        """Raise ``ConfigError`` for a file that cannot be written, or two results on stdout."""
        for option, name in (("--output", self.output), ("--markdown", self.markdown), ("--html", self.html)):
            check_writable(option, name)
        if self.markdown == STDOUT and (self.as_json or self.output == STDOUT):
            raise UsageError("--markdown", "stdout has the document of --json; name a file")

    @property
    def takes_stdout(self) -> bool:
        """Then nothing else is printed there."""
        return self.as_json or STDOUT in {self.output, self.markdown}

    def write(
        self,
        document: Callable[[], Any],
        markdown: Callable[[], str] = str,
        html: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """Make and write those that are wanted."""
        for name in {name for name in (self.output, STDOUT * self.as_json) if name}:
            write_json(name, document())
        if self.markdown:
            write_text(self.markdown, markdown())
        if self.html:
            html(Path(self.html))
