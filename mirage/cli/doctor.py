"""``mirage doctor``: check whether chains can work here, and how to improve them."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from mirage.cli.asking import AsJson, ConfigFile
from mirage.cli.daemonaccount import become_owner_of_files, load
from mirage.cli.printing import show
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.daemon.doctor.finding import Finding


_COLOURS = {"ok": typer.colors.GREEN, "warn": typer.colors.YELLOW, "fail": typer.colors.RED}


def doctor_command(config: ConfigFile = "", as_json: AsJson = False) -> None:
    """Check Slurm, this machine and the configuration; report the effects on chains and what to do.

    As root, the command runs with the rights of the daemon's account.

    Exit code 1 if a finding makes chains impossible.
    """
    from mirage.daemon.doctor.examination import examine

    findings = []
    loaded = load(config)
    become_owner_of_files(loaded)
    with _quiet():
        for finding in examine(loaded.config, loaded.files):
            findings.append(finding)
            if not as_json:
                _show(finding)
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=1))
    if any(finding.level == "fail" for finding in findings):
        raise typer.Exit(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log warnings about this process: the report is about the daemon."""
    log = logging.getLogger("mirage")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _show(finding: Finding) -> None:
    level = typer.style(f"{finding.level:<4}", fg=_COLOURS[finding.level])
    typer.echo(f"{level}  {printable(f'{finding.check}: {finding.found}')}")
    if finding.follows:
        show(f"      {finding.follows}")
    if finding.todo:
        show(f"      -> {finding.todo}")
