"""``mirage explain``: explain a chain or one of its links in sentences."""

from __future__ import annotations

import json
import textwrap
from typing import Annotated

import typer

from mirage.cli.asking import AsJson, Socket
from mirage.cli.completing import complete_chain
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.client.client import chain_path
from mirage.domain.bounds import MOST_LINKS
from mirage.domain.texts import printable

Id = Annotated[str, typer.Argument(metavar="CHAIN", help="ID or name of a chain.", autocompletion=complete_chain)]
Index = Annotated[int | None, typer.Argument(metavar="[LINK]", min=1, max=MOST_LINKS, help="Number of a link.")]
_NOT_FOUND = 3
_WIDTH = 100


def explain_command(chain_id: Id, link: Index = None, as_json: AsJson = False, socket: Socket = "") -> None:
    """Explain the state of a chain or of one of its links, and how the handovers went.

    For every single decision see mirage chain log.
    """
    with exit_codes():
        client = connect(socket)
        chain = client.get(chain_path(chain_id))
        timeline = client.get(f"{chain_path(chain['id'])}/timeline", link=link)
    if as_json:
        typer.echo(json.dumps({"chain": chain, "timeline": timeline}))
        return
    from mirage.cli.linkstory import link_story
    from mirage.cli.story import chain_story

    try:
        sentences = list(
            chain_story(chain, timeline) if link is None else link_story(link, timeline, chain["sentence"])
        )
    except KeyError:
        show(f"mirage: {chain['id']} has no link {link}; it has {len(timeline['links'])} links", err=True)
        raise SystemExit(_NOT_FOUND) from None
    for sentence in sentences:
        for line in textwrap.wrap(printable(sentence), _WIDTH) or [""]:
            show(line)
