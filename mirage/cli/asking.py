"""Options that several commands share, and reading of paged lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mirage.cli.completing import complete_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.client.client import Client

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Socket = Annotated[
    str, typer.Option("--socket", metavar="FILE", help="Socket of the daemon, or its http(s):// URL.")
]
ConfigFile = Annotated[str, typer.Option("--config", metavar="FILE", help="Configuration file of the daemon.")]
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="ID or name of a chain, as mirage chains shows it.",
        autocompletion=complete_chain,
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        "-o",
        "--format",
        metavar="FORMAT",
        help="Columns, by squeue's letters ('%.18i %T') or by name and width (chain,state:10).",
    ),
]
Sort = Annotated[
    str,
    typer.Option(
        "-S", "--sort", metavar="KEYS", help="Sort keys, comma-separated letters or names; -KEY: descending."
    ),
]
NoHeader = Annotated[bool, typer.Option("-h", "--noheader", help="Omit the header line.")]
Mine = Annotated[bool, typer.Option("--me", help="Show only your own.")]
User = Annotated[str, typer.Option("-u", "--user", metavar="USER", help="Show only these users, comma-separated.")]
Partition = Annotated[
    str, typer.Option("-p", "--partition", metavar="PART", help="Show only these partitions, comma-separated.")
]
States = Annotated[
    str, typer.Option("-t", "--states", metavar="STATES", help="Show only these states, comma-separated, or all.")
]


def listed(text: str) -> frozenset[str]:
    """Split a comma-separated list."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def selected(
    document: dict[str, Any], key: str, records: Iterable[T], shown: Callable[[T], bool]
) -> dict[str, Any]:
    """Return the document with only those items of ``key`` whose record (same order) is ``shown``."""
    items = [item for item, record in zip(document[key], records, strict=True) if shown(record)]
    return document | {key: items}


def whole(client: Client, path: str, key: str, **query: object) -> dict[str, Any]:
    """Read all pages of a list into one document; ``key`` names the items."""
    document: dict[str, Any] = {}
    for page in client.pages(path, **query):
        document = page if not document else document | {key: [*document[key], *page[key]]}
    document.pop("next", None)
    return document
