"""Output files of commands; the name ``-`` means stdout."""

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
    str, typer.Option("-o", "--output", metavar="FILE", help="Write the JSON document of --json to FILE.")
]
STDOUT = "-"


def check_writable(option: str, name: str) -> None:
    """Raise ``ConfigError`` before the work if the file ``name`` cannot be written."""
    if name in {"", "-"}:
        return
    path = Path(name)
    if path.is_dir():
        raise ConfigError(option, f"{name} is a directory; name a file")
    if not path.parent.is_dir():
        raise ConfigError(option, f"directory {path.parent} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(option, f"no permission to write {name}")


def write_text(name: str, text: str) -> None:
    """Write to a file, or to stdout if the name is ``-``."""
    if name == "-":
        typer.echo(text, nl=False)
    else:
        Path(name).write_text(text, encoding="utf-8")


def write_json(name: str, document: Any) -> None:
    """Write a document as ``write_text`` does."""
    write_text(name, json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class Report:
    """Output formats of one comparison, each with its file name; empty: not requested."""

    as_json: bool
    """Print the document on stdout."""
    output: str
    """File of the JSON document."""
    markdown: str = ""
    html: str = ""

    def check(self) -> None:
        """Raise ``ConfigError`` for a file that cannot be written, or for two results on stdout."""
        for option, name in (("--output", self.output), ("--markdown", self.markdown), ("--html", self.html)):
            check_writable(option, name)
        if self.markdown == STDOUT and (self.as_json or self.output == STDOUT):
            raise UsageError("--markdown", "the JSON document already uses stdout; name a file")

    @property
    def takes_stdout(self) -> bool:
        """Whether a result uses stdout, so that nothing else may be printed there."""
        return self.as_json or STDOUT in {self.output, self.markdown}

    def write(
        self,
        document: Callable[[], Any],
        markdown: Callable[[], str] = str,
        html: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """Create and write the requested formats."""
        for name in {name for name in (self.output, STDOUT * self.as_json) if name}:
            write_json(name, document())
        if self.markdown:
            write_text(self.markdown, markdown())
        if self.html:
            html(Path(self.html))
