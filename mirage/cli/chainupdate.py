"""``mirage chain update``: other settings for a chain that lives."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Annotated, Any

import typer

from mirage.cli.asking import AsJson, Id, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.usage import UsageError
from mirage.client.client import Client, chain_path
from mirage.domain.job import BatchScript, JobRequest

_NONE = "none"
_WITHOUT: dict[str, dict[str, Any]] = {
    "links": {"links": 0},
    "total-time": {"total_time": 0},
    "done-file": {"file": ""},
}
"""Options that take ``none``, and what then stands among the conditions."""


def update_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    chain_id: Id,
    *,
    links: Annotated[str, typer.Option(metavar="N|none", help="Done after N links.")] = "",
    total_time: Annotated[
        str, typer.Option(metavar="TIME|none", help="Done after this running time of all links.")
    ] = "",
    done_file: Annotated[str, typer.Option(metavar="FILE|none", help="Done once this file exists.")] = "",
    done_exit_code: Annotated[str, typer.Option(metavar="N|none", help="Done when a link exits so.")] = "",
    time: Annotated[str, typer.Option("-t", "--time", metavar="TIME", help="Time limit of links to come.")] = "",
    predictor: Annotated[str, typer.Option(metavar="NAME|none", help="Decides when to submit.")] = "",
    aim: Annotated[str, typer.Option(metavar="AIM", help="As for mirage submit.")] = "",
    steering: Annotated[str, typer.Option(metavar="HOW", help="As for mirage submit.")] = "",
    lead: Annotated[str, typer.Option(metavar="TIME", help="How early a successor is released.")] = "",
    max_overlap: Annotated[str, typer.Option(metavar="TIME", help="Longest overlap; 0: no bound.")] = "",
    grace: Annotated[str, typer.Option(metavar="TIME", help="From the signal to the end, making way.")] = "",
    on_failure: Annotated[str, typer.Option(metavar="WHAT", help="As for mirage submit.")] = "",
    retries: Annotated[str, typer.Option(metavar="N", help="As for mirage submit.")] = "",
    name: Annotated[str, typer.Option("-J", "--name", metavar="NAME", help="What the chain is called.")] = "",
    no_check: Annotated[bool, typer.Option("--no-check", help="Do not ask Slurm about the time limit.")] = False,
    as_json: AsJson = False,
    socket: Socket = "",
) -> None:
    """Change the settings of a chain while it runs, as scontrol update does for a job.

    Links that are on the cluster keep what they were submitted with. The script, its options other than
    the time limit, and the kind of handover stay: for others, cancel the chain and submit it again.
    """
    texts = {
        "links": links,
        "total-time": total_time,
        "done-file": done_file,
        "done-exit-code": done_exit_code,
        "predictor": predictor,
        "aim": aim,
        "steering": steering,
        "lead": lead,
        "max-overlap": max_overlap,
        "grace": grace,
        "on-failure": on_failure,
        "retries": retries,
        "name": name,
    }
    document = _document({option: text for option, text in texts.items() if text}, time)
    with exit_codes():
        daemon = connect(socket)
        if time and not no_check:
            _check_limit(daemon, chain_id, document["request"]["limit"])
        answer = daemon.patch(chain_path(chain_id), document)
    show(json.dumps(answer) if as_json else answer["sentence"])


def _check_limit(daemon: Client, chain_id: str, limit: int) -> None:
    """Raises ``ConfigError`` where Slurm would not take links of this limit, asked as the one who types."""
    from mirage.cli.sending import slurm_commands
    from mirage.cli.slurmcheck import check_request

    chain = daemon.get(chain_path(chain_id))
    user = pwd.getpwuid(os.getuid()).pw_name
    if chain["owner"] != user or daemon.get("/cluster")["backend"] == "simulated":
        return
    asked = chain["request"]
    probe = BatchScript("#!/bin/sh\n", tuple(asked["options"]), directory="/")
    request = JobRequest(
        asked["job_name"],
        user,
        limit,
        asked["nodes"],
        asked["partition"],
        asked["account"],
        asked["qos"],
        gres_per_node=tuple(asked["gres_per_node"].items()),
        batch=probe,
    )
    if remark := check_request(request, slurm_commands()):
        show(f"mirage: {remark}", err=True)


def _document(texts: dict[str, str], time: str) -> dict[str, Any]:
    """What ``PATCH /chains/ID`` takes. Raises ``UsageError``."""
    from mirage.cli.chainoptions import chain_document
    from mirage.domain.errors import BadSpelling
    from mirage.slurm import duration
    from mirage.slurm.sbatchoptions import Given

    none = {option for option, text in texts.items() if option in _WITHOUT and text.lower() == _NONE}
    given = {option: Given(option, text, "command line") for option, text in texts.items() if option not in none}
    daemons = texts.get("predictor", "").lower() == _NONE and given.pop("predictor")
    try:
        document = chain_document(given, str(Path.cwd()), None)
        if time:  # Slurm counts whole minutes, rounded up
            document["request"] = {"limit": -(-duration.parse(time) // 60) * 60}
    except BadSpelling as error:
        raise UsageError("OPTIONS", str(error)) from None
    if daemons:
        document["predictor"] = ""
    for option in none:
        document["done"] = document.get("done", {}) | _WITHOUT[option]
    if "retries" in texts and "on-failure" not in texts:
        raise UsageError("--retries", "name the failures with it, such as --on-failure exit=retry")
    if not document:
        raise UsageError("OPTIONS", "nothing is to change: name a setting, such as --links 20")
    return document
