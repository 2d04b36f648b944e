"""The examination: every check once, each independent of the others."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.backends.cluster_queries import CliVisibility, cli_controller_time
from mirage.backends.execution import CommandRunner
from mirage.bootstrap.backends import build_own_world
from mirage.bootstrap.cluster import command_environment, slurm_clock
from mirage.bootstrap.policies import build_guards
from mirage.bootstrap.simulated import SIMULATED
from mirage.client.client import Client
from mirage.client.errors import ClientError, Refusal
from mirage.config.places import daemon_socket, is_absent
from mirage.daemon.doctor import machine, slurm_settings
from mirage.daemon.doctor.account import find_account
from mirage.daemon.doctor.credentials import check_certificate, check_port, check_secrets, check_transports
from mirage.daemon.doctor.database import check_cluster_name, check_leadership, check_restoration
from mirage.daemon.doctor.finding import FindingLevel, fail, ok, read_partitions, read_settings, read_table, warn
from mirage.daemon.startcheck import check_start
from mirage.domain.errors import ClusterUnavailable, ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirage.bootstrap.cluster import ClusterConnection
    from mirage.client.documents import Chain
    from mirage.config.model import Config
    from mirage.daemon.doctor.account import DaemonAccount
    from mirage.daemon.doctor.finding import Finding, Row

_BY_THE_DAEMON = ("release", "token")
_SHOWN = 10


def check_files(config: Config) -> Iterator[Finding]:
    """The findings; of a running daemon's chains as far as it shows them to this user."""
    if config.acting.mode in _BY_THE_DAEMON:
        found = f"mode {config.acting.mode}: the daemon's account checks done files and handover files"
        follows = "a chain with such a file in a directory that this account may not search is rejected"
        yield ok("files", found, follows)
    if not config.api.enabled:
        yield _not_looked_at("api.enabled is false", "set api.enabled")
        return
    path = daemon_socket(Path(config.api.socket))
    if is_absent(path):
        return  # no daemon answers: another finding
    try:
        chains, denied = _chains(Client(str(path)))
    except ClientError as error:
        yield _not_looked_at(str(error), "read the daemon's log")
        return
    if denied:
        yield _not_looked_at(denied, "run mirage doctor as root or an administrator (api.admins)", "other users")
    blind = [chain for chain in chains if chain.files_unknown and not chain.over]
    for chain in blind[:_SHOWN]:
        follows = "its done file and handover file are ignored: it may run longer than needed"
        yield warn("files", f"{chain.id}: {chain.files_unknown}", follows, "see docs/handover.md, Files")
    if blind[_SHOWN:]:
        text = f"the same holds for {len(blind) - _SHOWN} more chains"
        yield warn("files", text, "their files are ignored", "mirage chains --all --json")


def _chains(client: Client) -> tuple[list[Chain], str]:
    """Those that the daemon shows to this user, and why these are not all; empty: they are."""
    try:
        return list(client.chains(everybody=True)), ""
    except Refusal as refusal:
        return list(client.chains()), refusal.detail


def _not_looked_at(why: str, todo: str, whose: str = "all users") -> Finding:
    follows = f"whether done files and handover files of {whose} can be checked is unknown"
    return warn("files", why, follows, todo)


_UNDER_WAY = 15
"""Seconds until an agent or helper begins a request (at most ten), plus a margin for the reply."""
_SBATCH = 30
"""Timeout of ``sbatch`` in agents and helpers, s."""


def check_settle(config: Config) -> Finding:
    """Check that ``settle`` exceeds the sum of the timeouts of a submission."""
    settle, needed = config.loop.settle, _UNDER_WAY + max(_SBATCH, config.cluster.timeout)
    found = f"loop.settle = {settle} s; a submission may take up to {needed} s"
    if settle > needed:
        return ok("settle", found, "a link is never submitted again while its first submission is in progress")
    follows = "a link whose reply is late may be submitted twice"
    return warn("settle", found, follows, f"set loop.settle above {needed} s")


_BY_COMMANDS = ("cli", "pyslurm")
_ONCE_RUN = "run this again once the daemon has run"


def examine(config: Config, files: Sequence[Path] = ()) -> Iterator[Finding]:
    """Yield all findings. Changes nothing and only queries Slurm.

    ``files``: those of the configuration. Rights are checked for the daemon's account, whichever user calls.
    """
    state, account = Path(config.service.state), find_account(config)
    yield from account.findings()
    yield from _each(
        ("configuration", lambda: machine.check_configuration(files, account.uid)),
        ("place", lambda: machine.check_place(state)),
        ("daemon", lambda: (machine.check_daemon(config),)),
        ("access", lambda: machine.check_access(state)),
        ("socket", lambda: (machine.check_socket(config),)),
        ("files", lambda: check_files(config)),
        ("settle", lambda: (check_settle(config),)),
        ("network address", lambda: check_port(config, account.uid)),
    )
    yield from account.look(lambda: _with_its_rights(config, account))


def _each(*checks: tuple[str, Callable[[], Iterable[Finding]]]) -> Iterator[Finding]:
    """Yield the findings of each check; a check that fails does not prevent the others."""
    for check, ask in checks:
        try:
            yield from ask()
        except OSError as error:
            yield fail(
                check, str(error), "this was not checked", "run mirage doctor as root or as the daemon's account"
            )
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            follows = "this was not checked: internal error (bug in Mirage)"
            yield fail(check, f"{type(error).__name__}: {said}", follows, "report it with this line")


def _with_its_rights(config: Config, account: DaemonAccount) -> Iterator[Finding]:
    """Check what the daemon's account may do and see."""
    simulated = config.cluster.backend == "simulated"
    yield from _each(
        ("start", lambda: _start(config)),
        ("state", lambda: machine.check_state(Path(config.service.state))),
        ("certificate", lambda: check_certificate(config)),
        ("transports", lambda: check_transports(config)),
        ("secrets", lambda: check_secrets(config)),
        ("leadership", lambda: check_leadership(config)),
        ("restoration", lambda: check_restoration(config)),
        ("cluster", lambda: _simulated(config) if simulated else _cluster(config, account)),
    )


def _start(config: Config) -> Iterator[Finding]:
    """Yield why a daemon would not start, as ``mirage config check`` finds it."""
    try:
        check_start(config)
    except MirageError as error:
        yield fail("start", str(error), "the daemon does not start", "correct it, then run this again")


def _simulated(config: Config) -> Iterator[Finding]:
    yield ok("cluster", "simulated: no Slurm is checked")
    yield from check_cluster_name(config, SIMULATED)


def _cluster(config: Config, account: DaemonAccount) -> Iterator[Finding]:
    commands = machine.check_commands(command_environment(config.cluster))
    if commands.level is FindingLevel.OK:
        yield commands
        slurm = CommandRunner(command_environment(config.cluster), config.cluster.timeout)
        yield from _Slurm(config, slurm, account).look()
    elif config.cluster.backend in _BY_COMMANDS:
        yield commands
        return
    else:
        todo = "run mirage doctor on a machine with scontrol to check Slurm's settings"
        yield warn("commands", commands.found, "Slurm's settings are not checked", todo)
    yield from _each(("cluster", lambda: _own_look(config)), ("acting", lambda: _acting(config, account)))


@dataclass(frozen=True, slots=True)
class _Slurm:
    """Slurm, queried by its commands."""

    config: Config
    commands: CommandRunner
    account: DaemonAccount

    @property
    def user(self) -> str:
        """The user as whom the daemon acts in Slurm: that of the REST token, else that of its account."""
        rest = self.config.cluster.rest.user if self.config.cluster.backend == "rest" else ""
        return rest or self.account.name

    def look(self) -> Iterator[Finding]:
        try:
            settings = read_settings(self.ask("scontrol", "show", "config"))
        except MirageError as error:
            yield fail(
                "controller",
                str(error),
                "no link is submitted until it answers",
                "check that slurmctld and munged run",
            )
            return
        yield ok("controller", f"{settings.get('ClusterName', '')} answers")
        yield from check_cluster_name(self.config, settings.get("ClusterName", ""))
        if settings.get("AuthType", "").endswith("munge"):
            yield machine.check_munge(settings.get("AuthInfo", ""))
        client = self.ask("scontrol", "--version")
        interval, steering = self.config.loop.interval, self.config.chains.steering
        yield from slurm_settings.check_settings(settings, client, interval, steering)
        yield from self.guarded("privacy", self.privacy(settings))
        yield from self.guarded("partitions", self.partitions())
        yield from self.guarded("clock", self.clock())
        if not settings.get("AccountingStorageType", "").endswith("none"):
            yield from self.guarded("account", self.people(settings))
            yield from self.guarded("history", self.history())

    def partitions(self) -> Iterator[Finding]:
        yield from slurm_settings.check_partitions(
            read_partitions(self.ask("scontrol", "-o", "show", "partition"))
        )

    def clock(self) -> Iterator[Finding]:
        ours = slurm_clock(self.config.cluster)
        shown = cli_controller_time(self.commands)
        yield machine.check_clock(shown, ours.now(), ours.rate)

    def privacy(self, settings: Row) -> Iterator[Finding]:
        hidden, others = settings.get("PrivateData", ""), self.config.acting.mode != "own"
        yield from slurm_settings.check_nodes(self.user, hidden)
        if slurm_settings.hides_jobs(hidden) and not self.account.known:
            follows = "whether the daemon's account sees other users' jobs is not checked"
            yield warn("privacy", f"PrivateData={hidden}", follows, _ONCE_RUN)
            return
        sees = slurm_settings.hides_jobs(hidden) and CliVisibility(self.commands, self.user)()
        yield slurm_settings.check_privacy(self.user, hidden, sees_all=sees, acts_for_others=others)

    def people(self, settings: Row) -> Iterator[Finding]:
        user, mode = self.user, self.config.acting.mode
        if mode == "own" and self.account.known:
            rows = read_table(self.ask("sacctmgr", "-P", "show", "associations", "where", f"user={user}"))
            enforced = "associations" in settings.get("AccountingStorageEnforce", "")
            yield from slurm_settings.check_associations(user, rows, enforced=enforced)
        if mode != "release":
            return
        rows = read_table(self.ask("sacctmgr", "-P", "show", "user", user))
        shown = self.account.is_ours or any(row.get("User") == user for row in rows)
        if self.account.known and shown:
            yield slurm_settings.check_operator(user, rows, settings.get("SlurmUser", ""))
        else:
            follows = "whether it may release other users' held links is not checked"
            whose = (
                f"Slurm does not show {user} to this caller" if self.account.known else "no daemon has run here"
            )
            yield warn("acting", whose, follows, "run mirage doctor as root, once the daemon has run")

    def history(self) -> Iterator[Finding]:
        began = time.monotonic()
        self.ask("sacct", "-X", "-n", "-P", "--format=JobID", "-S", "now-1hour", "-E", "now")
        yield ok("history", f"sacct answers within {time.monotonic() - began:.1f} s")

    def guarded(self, check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Yield the findings, or one that the query failed."""
        try:
            yield from findings
        except MirageError as error:
            yield warn(check, str(error), "this could not be checked", "check Slurm, then run this again")

    def ask(self, *argv: str) -> str:
        answer = self.commands.run(argv)
        if answer.status:
            said = " ".join(answer.said.split())
            raise ClusterUnavailable(f"{' '.join(argv[:3])}: exit {answer.status}: {said[:300]}")
        return answer.out


def _own_look(config: Config) -> Iterator[Finding]:
    """Check the cluster and the predictors, built as the daemon builds them."""
    try:
        world = build_own_world(config)
    except ConfigError as error:
        yield fail("cluster", str(error), "the daemon cannot start", "correct the configuration")
        return
    yield _snapshot(config, world)
    yield _predictors(config, world)
    yield from _description(config, world)


def _snapshot(config: Config, world: ClusterConnection) -> Finding:
    began = time.monotonic()
    try:
        seen = world.cluster.snapshot()
    except ConfigError as error:
        return fail("cluster", str(error), "the daemon cannot start", "correct the configuration")
    except MirageError as error:
        return fail("cluster", str(error), "no link is submitted until it answers", "check Slurm")
    took = time.monotonic() - began
    found = f"{len(seen.pending)} pending and {len(seen.running)} running jobs seen in {took:.1f} s"
    if took > config.loop.slow_answer:
        follows = "the daemon polls less often while a poll takes that long"
        return warn("cluster", found, follows, "find out why Slurm is slow; see sdiag")
    return ok("cluster", found)


def _predictors(config: Config, world: ClusterConnection) -> Finding:
    """Those that the configuration names, built as the daemon builds them: a model is for one cluster."""
    try:
        guards = build_guards(config, world.lore)
    except MirageError as error:
        todo = "correct it; a model must be trained on this cluster"
        return fail("predictors", str(error), "the daemon cannot start", todo)
    guards.close()
    return ok("predictors", ", ".join(guards.names))


def _description(config: Config, world: ClusterConnection) -> Iterator[Finding]:
    """Check whether the cluster can be simulated from Slurm's configuration files."""
    if config.predictors.lookahead.cluster or world.lore.description is None:
        return
    try:
        world.lore.description()
    except MirageError as error:
        follows = "look-ahead, training and replays of this cluster are not possible; auto uses past waits"
        todo = "correct it, or name a copy of slurm.conf or a cluster file in predictors.lookahead.cluster"
        yield warn("description", str(error), follows, todo)


def _acting(config: Config, account: DaemonAccount) -> Iterator[Finding]:
    match config.acting.mode:
        case "own" if account.uid == 0:
            follows = "every link would run as root"
            yield fail(
                "acting", "mode own, as root", follows, "run the daemon as the user whose chains it manages"
            )
        case "own":
            yield ok("acting", f"mode own: links run as {account.name}")
        case "agent" if not config.api.enabled:
            yield fail("acting", "mode agent without api.enabled", "agents cannot connect", "set api.enabled")
        case "agent":
            yield ok("acting", "mode agent", "each user must run mirage agent")
        case "sudo":
            yield from machine.check_helper(Path(config.acting.helper))
            sudo = CommandRunner({"PATH": os.defpath, "LC_ALL": "C"}, config.acting.timeout)
            yield machine.check_sudoers(Path(config.acting.helper), sudo)
            yield machine.check_tracing()
            yield from machine.check_privileges(Path(config.service.state))
        case "token":
            yield from machine.check_tokens(Path(config.acting.tokens))
        case "release":
            yield ok("acting", "mode release", "users submit links in advance, held")
