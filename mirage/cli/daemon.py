"""``mirage daemon``, ``mirage config``, ``mirage doctor``; and the switch to the daemon's account.

Root switches to that account before a command changes its files: the daemon could not use files of root. The
command then has no more rights than that account, for example through a symbolic link that it has created. A
configuration names programs to run, so root also switches to the owner of the configuration file.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.printing import show
from mirage.cli.shared_options import AsJson, ConfigFile
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.config.loading import Loaded
    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding

DaemonConfig = Annotated[
    str,
    typer.Option(
        "--config", metavar="FILE", help="Configuration file (default for root: /etc/mirage/mirage.toml)."
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Run one cycle and exit.")]


def daemon_command(config: DaemonConfig = "", once: Once = False) -> None:
    """Run the daemon in the foreground. SIGTERM stops it, SIGHUP reloads the configuration.

    After a reload (systemctl reload) the sections loop, predictors, limits, log and store.retention take effect
    immediately. The log names the changed keys that need a restart.
    """
    from pathlib import Path

    from mirage.bootstrap.assembly import build
    from mirage.config.loading import load_config
    from mirage.daemon.process import leave, run_daemon

    file = Path(config) if config else None
    leave(run_daemon(lambda: load_config(file), build, once=once))


_TURN = 45.0
"""Seconds that a brief daemon of a command waits for the end of another one."""


def cycle_command(
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="Interval at which cron or a workflow tool calls this.")
    ] = "0s",
    linger: Annotated[
        str, typer.Option("--linger", metavar="TIME", help="Stay for this time after the last request.")
    ] = "0s",
    log: Annotated[bool, typer.Option("--log", help="Write to cron.log in the state directory.")] = False,
    turn: Annotated[bool, typer.Option("--turn", hidden=True)] = False,
    config: ConfigFile = "",
) -> None:
    """Do for your chains what is due now, and exit: a daemon for sites where no process may stay.

    With --every the command also waits for what falls due before the next call. Commands that you type in between
    start it by themselves. Exit code 1 if Slurm does not answer or the cycle failed, 0 also if a daemon already
    runs.
    """
    from mirage.bootstrap.assembly import build
    from mirage.cli.arguments import duration_of
    from mirage.config.loading import load_config
    from mirage.daemon.brief import Term, note_call
    from mirage.daemon.process import leave, run_daemon
    from mirage.daemon.state_directory import AlreadyRunning, write_to_log

    term = Term(duration_of("--every", every), duration_of("--linger", linger), reports=turn)
    file = Path(config) if config else None
    if log:
        write_to_log(Path(load_config(file).config.service.state))
    limit = time.monotonic() + _TURN
    while True:
        try:
            leave(run_daemon(lambda: load_config(file), build, brief=term))
        except AlreadyRunning as error:
            if not term.insists or time.monotonic() > limit:
                if term.every:
                    note_call(Path(load_config(file).config.service.state), term.every)
                show(f"nothing to do: {str(error).partition(' (')[0]}", err=True)
                if term.reports:  # what this call came for may be newer than what the other one has seen
                    raise typer.Exit(1) from None
                return
        time.sleep(0.1)


config_app = typer.Typer(help="Show, check or document the daemon's configuration.", no_args_is_help=True)


@config_app.command("show")
def show_command(config: ConfigFile = "", as_json: AsJson = False) -> None:
    """Show the value of every key and its origin. Passwords are hidden."""
    from pathlib import Path

    from mirage.config.loading import load_config

    rows = _rows(load_config(Path(config) if config else None))
    if as_json:
        typer.echo(json.dumps({key: {"value": value, "from": origin} for key, value, origin in rows}, indent=1))
        return
    key_width = max(len(key) for key, _, _ in rows)
    texts = [(key, json.dumps(value, ensure_ascii=False), origin) for key, value, origin in rows]
    value_width = min(40, max(len(text) for _, text, _ in texts))
    for key, text, origin in texts:
        typer.echo(f"{key:<{key_width}} = {text:<{value_width}}  # {origin}")


@config_app.command("check")
def check_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Configuration file.")], as_json: AsJson = False
) -> None:
    """Check a configuration file as the daemon reads it, with conf.d next to it and the environment."""
    from pathlib import Path

    from mirage.config.loading import load_config
    from mirage.daemon.startcheck import check_start
    from mirage.domain.errors import MirageError

    try:
        loaded = load_config(Path(file))
        with loaded.explaining():
            check_start(loaded.config)
    except MirageError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"file": file, "ok": False, "problem": str(error)}))
        raise typer.Exit(1) from None
    typer.echo(json.dumps({"file": file, "ok": True}) if as_json else f"{file}: ok")


@config_app.command("reference")
def reference_command() -> None:
    """Print a configuration file with every key commented out, its default and its meaning."""
    from mirage.config.reference import reference

    typer.echo(reference(), nl=False)


def _rows(loaded: Loaded) -> list[tuple[str, object, str]]:
    from mirage.config.loading import masked, settings

    return [(".".join(key), masked(value), loaded.origin(key)) for key, value in settings(loaded.config)]


def configured(config: str) -> Config:
    """Load the configuration; root switches to the owner of its files, else of the state directory."""
    loaded = load(config)
    become_owner_of_files(loaded)
    become_owner(Path(loaded.config.service.state))
    return loaded.config


def load(config: str) -> Loaded:
    """Load a configuration file, by default the default one."""
    from mirage.config.loading import load_config

    return load_config(Path(config) if config else None)


def become_owner_of_files(loaded: Loaded) -> None:
    """Switch from root to the owner of the configuration files, unless that is root."""
    for file in loaded.files:
        become_owner(file)


def become_owner(folder: Path) -> None:
    """Switch from root to the owner of the directory, or of its nearest existing parent."""
    about = _nearest(folder.absolute()).stat()
    if os.geteuid() != 0 or about.st_uid == 0:
        return
    try:
        os.initgroups(pwd.getpwuid(about.st_uid).pw_name, about.st_gid)
    except KeyError:  # an account of another machine
        os.setgroups([])
    os.setgid(about.st_gid)
    os.setuid(about.st_uid)


def _nearest(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


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
