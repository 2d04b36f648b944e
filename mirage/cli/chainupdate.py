"""``mirage chain update``: change the settings of an active chain."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Annotated, Any

import typer

from mirage.cli.arguments import UsageError
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.shared_options import AsJson, Id, Socket
from mirage.client.client import Client, chain_path
from mirage.domain.job import BatchScript, JobRequest

_NONE = "none"
_WITHOUT: dict[str, dict[str, Any]] = {
    "links": {"links": 0},
    "total-time": {"total_time": 0},
    "done-file": {"file": ""},
}
"""Options that take ``none``, with the document that ``none`` stands for."""

TotalTime = Annotated[
    str, typer.Option(metavar="TIME|none", help="End the chain after this run time of all links.")
]
DoneExitCode = Annotated[str, typer.Option(metavar="N|none", help="End the chain when a link exits with N.")]
Predictor = Annotated[
    str, typer.Option(metavar="NAME|none", help="Predictor that decides when to submit; none: the daemon's.")
]
Aim = Annotated[
    str, typer.Option(metavar="OBJECTIVE", help="Objective: cheapest, no-interruption=90% or overlap=30m.")
]
Steering = Annotated[str, typer.Option(metavar="HOW", help="Early submission: auto, pin, hold, nice or off.")]
Lead = Annotated[str, typer.Option(metavar="TIME", help="Release a successor TIME before its predecessor ends.")]
Grace = Annotated[str, typer.Option(metavar="TIME", help="Time between the signal to a predecessor and its end.")]
OnFailure = Annotated[
    str, typer.Option(metavar="ACTION", help="After a failed script: retry, continue or stop, or a list.")
]
Retries = Annotated[
    str, typer.Option(metavar="N", help="Stop after more than N failures in a row; requires --on-failure.")
]
NoCheck = Annotated[bool, typer.Option("--no-check", help="Skip the check whether Slurm accepts the time limit.")]


def update_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    chain_id: Id,
    *,
    links: Annotated[str, typer.Option(metavar="N|none", help="End the chain after N links.")] = "",
    total_time: TotalTime = "",
    done_file: Annotated[str, typer.Option(metavar="FILE|none", help="End the chain when FILE exists.")] = "",
    done_exit_code: DoneExitCode = "",
    time: Annotated[str, typer.Option("-t", "--time", metavar="TIME", help="Time limit of future links.")] = "",
    predictor: Predictor = "",
    aim: Aim = "",
    steering: Steering = "",
    lead: Lead = "",
    max_overlap: Annotated[str, typer.Option(metavar="TIME", help="Maximum overlap; 0: no limit.")] = "",
    grace: Grace = "",
    on_failure: OnFailure = "",
    retries: Retries = "",
    name: Annotated[str, typer.Option("-J", "--name", metavar="NAME", help="Name of the chain.")] = "",
    no_check: NoCheck = False,
    as_json: AsJson = False,
    socket: Socket = "",
) -> None:
    """Change the settings of a chain while it runs, as scontrol update does for a job.

    Submitted links keep their settings. The script, its options other than the time limit, and --handover cannot
    be changed: to change them, cancel the chain and submit it again.
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
    if time:
        _show_pending(answer["chain"])


def _show_pending(chain: dict[str, Any] | None) -> None:
    """Name the job that stays in the queue with the former time limit."""
    if chain is None:
        return
    for link in chain["links"]:
        if link["job_id"] and link["state"] in ("submitted", "pending"):
            job, index = link["job_id"], link["index"]
            replaced = f"to replace it: scancel {job}, then mirage chain resume {chain['id']}"
            show(f"mirage: link {index} (job {job}) keeps its time limit; {replaced}", err=True)


def _check_limit(daemon: Client, chain_id: str, limit: int) -> None:
    """Raises ``ConfigError`` if Slurm would reject links with this time limit for the calling user."""
    from mirage.cli.sending import slurm_commands
    from mirage.cli.slurm_checks import check_request

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
        raise UsageError("--retries", "requires --on-failure, such as --on-failure exit=retry")
    if not document:
        raise UsageError("OPTIONS", "no setting is given; give one, such as --links 20")
    return document
