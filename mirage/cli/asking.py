"""Options that several commands share, most of them about the daemon, and lists that come page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mirage.cli.completing import complete_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.client.client import Client

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Socket = Annotated[
    str, typer.Option("--socket", metavar="FILE", help="The daemon's socket, or its http(s):// address.")
]
ConfigFile = Annotated[str, typer.Option("--config", metavar="FILE", help="As for mirage daemon.")]
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A chain's id, as mirage chains shows it, or its name.",
        autocompletion=complete_chain,
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        "-o", "--format", metavar="FORMAT", help="squeue's letters ('%.18i %T'), or names: chain,state:10."
    ),
]
Sort = Annotated[
    str,
    typer.Option("-S", "--sort", metavar="KEYS", help="Letters or names, comma-separated; -KEY: the other way."),
]
NoHeader = Annotated[bool, typer.Option("-h", "--noheader", help="Without the line of headings.")]
Mine = Annotated[bool, typer.Option("--me", help="One's own only.")]
User = Annotated[str, typer.Option("-u", "--user", metavar="USER", help="Of these users, comma-separated.")]
Partition = Annotated[
    str, typer.Option("-p", "--partition", metavar="PART", help="In these partitions, comma-separated.")
]
States = Annotated[
    str, typer.Option("-t", "--states", metavar="STATES", help="In these states, comma-separated; or all.")
]


def listed(text: str) -> frozenset[str]:
    """The words of a list with commas."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def selected(
    document: dict[str, Any], key: str, records: Iterable[T], shown: Callable[[T], bool]
) -> dict[str, Any]:
    """The document with those items under ``key`` whose record is ``shown``; ``records`` are in their order."""
    items = [item for item, record in zip(document[key], records, strict=True) if shown(record)]
    return document | {key: items}


def whole(client: Client, path: str, key: str, **query: object) -> dict[str, Any]:
    """A list that comes in pages as one document; ``key`` names its items."""
    document: dict[str, Any] = {}
    for page in client.pages(path, **query):
        document = page if not document else document | {key: [*document[key], *page[key]]}
    document.pop("next", None)
    return document
