"""Options of Mirage 0.1: ``--out`` instead of ``--output``, and ``--json FILE`` instead of ``-o FILE``."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

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
