"""Check, show and send a planned chain, for ``mirage submit`` and ``mirage adopt``."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import typer

from mirage.cli.printing import show
from mirage.domain.chain import Chain, ChainId, HandoverPolicy, Steering
from mirage.domain.errors import ConfigError
from mirage.ownplaces import make_own_directory
from mirage.slurm.batchscript import read_interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.backends.execution import CommandRunner
    from mirage.cli.chain_request import ChainRequest
    from mirage.client.client import Client

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_HANDLES = re.compile(r"\b(?:trap|exec)\b")


def slurm_commands() -> CommandRunner:
    """Return the runner of Slurm's commands for the calling user."""
    from mirage.backends.execution import CommandRunner

    return CommandRunner(os.environ)


def post_chain(daemon: Client, target: str, plan: ChainRequest) -> Any:
    """Send the chain and return the reply. Raises ``Unanswered`` with the ID of the chain that may exist."""
    from mirage.client.errors import Unanswered

    try:
        return daemon.post(target, plan.document)
    except Unanswered as error:
        may = f"chain {plan.chain_id} may have been created: check mirage chains before you submit again"
        raise Unanswered(f"{error}; {may}") from error


def tell_warnings(answer: Any) -> None:
    """Print the daemon's warnings about a chain that it has created."""
    if (shown := answer.get("chain")) and shown["files_unknown"]:
        show(f"mirage: warning: the daemon cannot check a file: {shown['files_unknown']}", err=True)
    if warning := answer.get("warning"):
        show(f"mirage: warning: {warning}", err=True)


def check_plan(plan: ChainRequest, daemon: Client) -> None:
    """Raises ``ConfigError`` for a chain whose links could not run. Submitting held links is itself the check."""
    from mirage.cli.slurm_checks import check_directory, check_done_file, check_request

    check_directory(plan.request)
    check_done_file(plan.document.get("done", {}).get("file") or "")
    if plan.held_links or daemon.get("/cluster")["backend"] == "simulated":
        return
    if remark := check_request(plan.request, slurm_commands()):
        show(f"mirage: {remark}", err=True)


def warn_of_parts(plan: ChainRequest) -> None:
    """Warn that pinned links may start too early; whether they do shows only when the first one runs."""
    if plan.document.get("steering") == Steering.PIN and not plan.request.exclusive:
        show(
            "mirage: --steering=pin: the job does not request whole nodes; add --exclusive. If a second link fits "
            "next to the first one, links are not pinned and do not age in the queue (see mirage explain)",
            err=True,
        )


def warn_of_untrapped(plan: ChainRequest) -> None:
    """Warn that Slurm's warning ends a shell script which has nothing that handles it."""
    warn, batch = plan.request.warn, plan.request.batch
    if warn is None or not warn.batch_only or batch is None:
        return
    words = " ".join(read_interpreter(batch.text, plan.request.name)).split()
    is_shell = any(PurePath(word).name in _SHELLS for word in words)
    code = (line for line in batch.text.splitlines() if not line.lstrip().startswith("#"))
    if is_shell and not any(_HANDLES.search(line) for line in code):
        show(
            f"mirage: --signal={warn.spelling} signals the batch shell, and the script has neither trap nor exec: "
            f"the signal ends it {warn.lead} s before the limit. Without B: the steps of srun get it instead",
            err=True,
        )


def make_room(plan: ChainRequest) -> None:
    """Create the directory of the handover files, so that a script can ``touch "$MIRAGE_HANDOVER_FILE"``."""
    if plan.document.get("handover", {}).get("policy") != HandoverPolicy.WHEN_READY:
        return
    file = Path(Chain(ChainId(plan.chain_id), "", plan.request.user, plan.request).handover_file(1))
    try:
        make_own_directory(file.parent)
    except OSError as error:
        problem = f"cannot create the directory of the handover files: {error.strerror or error}"
        raise ConfigError(str(file.parent), problem) from error


def show_plan(plan: ChainRequest, link: int, *, as_json: bool) -> None:
    """Print the chain and the sbatch line of ``link``, the first one that Mirage submits."""
    from mirage.slurm.sbatch import sbatch_arguments

    request = plan.request
    assert request.batch is not None
    arguments = sbatch_arguments(replace(request, tag=f"mirage:{plan.chain_id}:{link}"))
    variables = [name for name, _ in request.batch.environment]
    chain = {name: value for name, value in plan.document.items() if name != "request"}
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "chain": chain,
                    "sbatch": arguments,
                    "script": request.batch.text,
                    "arguments": request.batch.arguments,
                    "environment": variables,
                },
                indent=1,
            )
        )
        return
    typer.echo("Dry run: nothing is submitted. Settings of the chain that differ from the daemon's defaults:")
    typer.echo(json.dumps(chain, indent=1))
    typer.echo(f"The {'first' if link == 1 else 'next'} link; later links differ only in the comment:")
    script = ["SCRIPT", *_quoted(request.batch.arguments)] if request.batch.arguments else []
    typer.echo("sbatch " + " \\\n  ".join([*_quoted(arguments), *script]))
    typer.echo(f"with {len(variables)} variables of your environment, MIRAGE_ variables, and the script:")
    typer.echo(request.batch.text.encode("utf-8", "surrogateescape"), nl=False)


def _quoted(arguments: Sequence[str]) -> list[str]:
    import shlex

    return [shlex.quote(argument) for argument in arguments]
