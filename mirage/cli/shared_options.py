"""Options that several commands share, options of Mirage 0.1, and reading of paged lists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from mirage.cli.connection import complete_chain
from mirage.domain.bounds import HIGHEST_FACTOR, MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirage.client.client import Client

Trace = Annotated[
    str, typer.Argument(metavar="TRACE", help="Trace file, or generated:PRESET:SEED such as generated:ls6:1.")
]
Cluster = Annotated[
    str, typer.Option(metavar="NAME", help="Cluster file (TOML), slurm.conf, or name of a preset.")
]
Limit = Annotated[str, typer.Option(metavar="TIME", help="Time limit of each link; each link runs until it.")]
NodeCounts = Annotated[str, typer.Option(metavar="LIST", help="Nodes of each link, comma-separated.")]
PartitionName = Annotated[
    str, typer.Option("--partition", metavar="PART", help="Partition of the links; empty: the default partition.")
]
Schema = Annotated[str, typer.Option(metavar="NAME", help="Feature schema: v2 or paper-v1.")]
Workers = Annotated[int, typer.Option(min=0, max=MOST_WORKERS, help="Number of processes; 0: one per CPU.")]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict/--lenient", help="Stop at an invalid row (strict), or leave it out and report it (lenient)."
    ),
]

EngineName = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", help="Launcher: srun (default in a Slurm job) or processes (this machine)."
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=HIGHEST_FACTOR,
        metavar="N",
        help="Number of devices of this machine (default: as nvidia-smi reports).",
    ),
]


_FLAG = "--json"
_OUT = re.compile(r"^--out(?==|$)")
_INSTEAD = "takes no FILE; --json prints the document on stdout, -o FILE writes it to FILE"


class OutputCommand(TyperCommand):
    """Accepts ``--out``, the old name of ``--output``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replace ``--out X`` and ``--out=X``."""
        return super().parse_args(ctx, [_OUT.sub("--output", word) for word in args])


class JsonFlagCommand(TyperCommand):
    """Rejects ``--json FILE`` and names its replacement."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ``BadParameter`` for a file after ``--json``."""
        if any(word.startswith(f"{_FLAG}=") for word in args):
            raise typer.BadParameter(_INSTEAD, ctx, param_hint=_FLAG)
        behind = [args[place + 1] for place, word in enumerate(args[:-1]) if word == _FLAG]
        if any(word == "-" or word.endswith(".json") for word in behind) or (behind and self._too_many(ctx, args)):
            raise typer.BadParameter(_INSTEAD, ctx, param_hint=_FLAG)
        return super().parse_args(ctx, args)

    def _too_many(self, ctx: Any, args: list[str]) -> bool:
        """Return whether there are too many arguments: one of them may be meant for ``--json``."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        if any(param.nargs < 0 for param in arguments) or {"-h", "--help"} & set(args):
            return False
        _, rest, _ = self.make_parser(ctx).parse_args(list(args))
        return len(rest) > len(arguments)


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
