"""The side that faces Slurm: one builder a backend, and one a mode of acting in users' names.

A real cluster may be copied for the simulator: its slurm.conf, and the accounts and limits that slurmdbd has.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.cluster import (
    ClusterConnection,
    ClusterInfo,
    command_environment,
    own_user,
    slurm_clock,
    takes_any,
)
from mirage.control.clockcheck import ClockCheck
from mirage.domain.errors import ClusterUnavailable, ConfigError
from mirage.simulator.configuration.slurmconf import (
    ASSOCIATIONS_FILE,
    QOS_FILE,
    USERS_FILE,
    VERSION_FILE,
    inspect_slurm_conf,
)
from mirage.slurm.conf import FILE, read_settings
from mirage.slurm.error_messages import one_line

if TYPE_CHECKING:
    from mirage.backends.agent_requests import AgentResponse
    from mirage.backends.execution import CommandRunner
    from mirage.backends.links_only import JobIdentity
    from mirage.backends.sudo import Helper
    from mirage.config.model import ClusterConnectionSection, Config
    from mirage.control.clocks import CorrectedClock
    from mirage.domain.job import JobId
    from mirage.ports import Actuator
    from mirage.simulator.cluster import ClusterConfig

_LOG = logging.getLogger(__name__)

_BY_AGENT, _BY_SUDO = 20.0, 30.0
"""Seconds after which a check of files counts as hanging: an agent may be busy, a helper starts a Python."""
_EVERY_BY_SUDO = 15.0
"""Seconds: each check by sudo is a process, and a line in the log of sudo."""


def act_as_configured(config: Config, own: ClusterConnection) -> ClusterConnection:
    """The world as ``own`` shows it, acted on in users' names. Raises ``ConfigError``."""
    match config.acting.mode:
        case "own":
            return _by_itself(config, own)
        case "agent":
            return _by_agents(config, own)
        case "release":
            return _by_release(config, own)
        case "sudo":
            return _by_sudo(config, own)
        case "token":
            return _by_tokens(config, own)


def _by_itself(config: Config, own: ClusterConnection) -> ClusterConnection:
    from mirage.backends.execution import CommandRunner
    from mirage.backends.marked_jobs import Adopter, MarkedJobs

    section = config.cluster
    if section.backend not in ("cli", "pyslurm"):  # Slurm's commands may not be on this machine
        return own
    named = {"SLURM_CONF": section.slurm_conf, "MIRAGE_CLUSTER__CLOCK": section.clock}
    environment = os.environ | {name: value for name, value in named.items() if value}
    commands = CommandRunner(command_environment(section), section.timeout)
    jobs = MarkedJobs(commands, environment | {"MIRAGE_SOCKET": config.api.socket})

    def adopt(_: str, job_id: JobId) -> AgentResponse:
        return jobs.adopt(job_id)

    return replace(own, adopter=Adopter(adopt, lambda user: user == own.user))


def _by_owners(own: ClusterConnection, actuator: Actuator) -> ClusterConnection:
    """Slurm reports planned starts only for jobs of the daemon's user; other users' cannot be queried."""
    return replace(own, actuator=actuator, check_request=takes_any)


def _by_agents(config: Config, own: ClusterConnection) -> ClusterConnection:
    from mirage.backends.agent_queue import AgentActuator, AgentQueue, QueueTimeouts
    from mirage.backends.agent_requests import AdoptJob
    from mirage.backends.background_files import CheckLimits
    from mirage.backends.marked_jobs import Adopter
    from mirage.backends.owner_turns import files_by_order

    desk = AgentQueue(_late, QueueTimeouts(answer=config.acting.timeout))
    files = files_by_order(desk.ask, CheckLimits(timeout=_BY_AGENT))
    adopter = Adopter(lambda owner, job_id: desk.ask(owner, AdoptJob(job_id)), desk.attached)
    return replace(_by_owners(own, AgentActuator(desk)), desk=desk, files=files, adopter=adopter)


def _late(owner: str, order_id: str, answer: AgentResponse) -> None:
    """Log an agent's answer after the timeout; the next snapshot shows the outcome."""
    verdict = answer.verdict.name.lower()
    _LOG.warning("event=agent_answer_late user=%s order=%s result=%s", owner, order_id, verdict)


def _by_release(config: Config, own: ClusterConnection) -> ClusterConnection:
    from mirage.backends.execution import CommandRunner
    from mirage.backends.operator import OperatorActuator, ReleaseCluster
    from mirage.backends.owner_turns import InTurns

    operator = OperatorActuator(CommandRunner(command_environment(config.cluster), config.cluster.timeout))
    both = ReleaseCluster(own.cluster, InTurns(operator, "Slurm's controller"))
    return replace(_by_owners(own, both), cluster=both)


def _by_sudo(config: Config, own: ClusterConnection) -> ClusterConnection:
    from mirage.backends.agent_requests import AdoptJob
    from mirage.backends.background_files import CheckLimits
    from mirage.backends.marked_jobs import Adopter
    from mirage.backends.owner_turns import files_by_order
    from mirage.backends.sudo import HelperGroups, SudoActuator, check_person, own_group

    helper = _helper(config)
    groups = HelperGroups.delegated(own_group())
    if groups is None:
        _LOG.warning(
            "event=helpers_not_bounded text=%r",
            "programs that helpers of users start share the daemon's memory; add Delegate=yes to its systemd unit",
        )
    actuator = SudoActuator(helper, groups)
    files = files_by_order(actuator.ask, CheckLimits(timeout=_BY_SUDO, every=_EVERY_BY_SUDO))
    made = _by_owners(own, actuator)
    adopter = Adopter(lambda owner, job_id: actuator.ask(owner, AdoptJob(job_id)))
    return replace(made, files=files, check_request=lambda request: check_person(request.user), adopter=adopter)


def _helper(config: Config) -> Helper:
    from mirage.backends.sudo import Helper

    if not Path(config.acting.helper).is_absolute():
        raise ConfigError("acting.helper", "sudo needs the program's whole path, as sudoers names it")
    return Helper(config.acting.helper, answer=config.acting.timeout)


def _by_tokens(config: Config, own: ClusterConnection) -> ClusterConnection:
    from mirage.backends.links_only import LinkGuard
    from mirage.backends.owner_turns import InTurns
    from mirage.backends.restactuator import RestActuator, TokenDirectory
    from mirage.backends.restclient import RestAddress

    if not config.cluster.rest.url:
        raise ConfigError("cluster.rest.url", "acting mode token needs it, such as http://127.0.0.1:6820")
    if not config.acting.tokens:
        raise ConfigError("acting.tokens", "acting mode token needs the directory of the users' tokens")
    rest, directory = config.cluster.rest, TokenDirectory(Path(config.acting.tokens))
    address = RestAddress.parse(rest.url, rest.server_user)
    actuator = RestActuator(address, directory, own.clock, timeout=config.acting.timeout)
    guard = LinkGuard(own.cluster, actuator, actuator.identify)
    turns = InTurns(guard, f"slurmrestd at {address.text}")
    by_owners = _by_owners(own, turns)
    return replace(by_owners, cluster=guard, check_request=actuator.check, identify=actuator.identify)


_ASKED = {
    ASSOCIATIONS_FILE: ("sacctmgr", "--parsable2", "show", "assoc"),
    QOS_FILE: ("sacctmgr", "--parsable2", "show", "qos"),
    USERS_FILE: ("sacctmgr", "--parsable2", "show", "user"),
    VERSION_FILE: ("scontrol", "--version"),
}
"""Commands whose output is read where no file next to slurm.conf has it."""


def described_by_slurm(slurm_conf: str, commands: CommandRunner) -> ClusterConfig:
    """The cluster as ``slurm_conf`` describes it; empty: as the file that the controller names.

    Accounts and limits come from slurmdbd where no dumps of them stand next to the file; without accounting they
    are empty. Raises ``ConfigError`` and ``ClusterUnavailable``.
    """
    path = _conf(slurm_conf, commands)
    return inspect_slurm_conf(path, _told(commands, path)).config


def copied_from_slurm(slurm_conf: str, commands: CommandRunner, folder: Path) -> str:
    """The same as a directory within ``folder``, for programs that cannot ask; raises as
    ``described_by_slurm``."""
    path, copy = _conf(slurm_conf, commands), folder / "cluster"
    copy.mkdir()
    # Links: what else lies next to a slurm.conf may be secret.
    for entry in path.parent.iterdir():
        (copy / entry.name).symlink_to(entry)
    if path.name != "slurm.conf":
        (copy / "slurm.conf").unlink(missing_ok=True)
        (copy / "slurm.conf").symlink_to(path)
    for name, text in _told(commands, path).items():
        (copy / name).write_text(text, encoding="utf-8")
    return str(copy)


def _conf(slurm_conf: str, commands: CommandRunner) -> Path:
    path = Path(slurm_conf or read_settings(_asked(commands, "scontrol", "show", "config")).get(FILE, ""))
    if not path.is_file():
        raise ConfigError(
            "predictors.lookahead.cluster",
            f"the cluster's slurm.conf is not on this machine ({path}); set a copy or a cluster file",
        )
    return path


def _told(commands: CommandRunner, conf: Path) -> dict[str, str]:
    """Dumps as ``inspect_slurm_conf`` has them, by the names of files that are not there."""
    found = {}
    for file, argv in _ASKED.items():
        if (conf.parent / file).is_file():
            continue
        try:
            found[file] = _asked(commands, *argv)
        except ClusterUnavailable:  # as without such a file: no accounts or limits, the older rules
            continue
    return found


def _asked(commands: CommandRunner, *argv: str) -> str:
    answer = commands.run(argv)
    if answer.status:
        raise ClusterUnavailable(f"{argv[0]}: exit {answer.status}: {one_line(answer.said)}")
    return answer.out


def build_world(config: Config) -> ClusterConnection:
    """The cluster that the configuration names, acted on as it says. Raises ``ConfigError``, ``MissingExtra``."""

    return act_as_configured(config, build_own_world(config))


def build_own_world(config: Config) -> ClusterConnection:
    """The same as the daemon's own user sees it and acts on it. Raises ``ConfigError`` and ``MissingExtra``."""
    match config.cluster.backend:
        case "cli":
            return _cli(config.cluster)
        case "rest":
            return _rest(config.cluster)
        case "simulated":
            from mirage.bootstrap.compiling_apart import prepare_cache
            from mirage.bootstrap.simulated import compile_simulator, simulated_world

            prepare_cache()
            compile_simulator()  # not when a poll or a command first needs it: the loop would stand still
            return simulated_world(config.cluster.simulated, Path(config.service.state))
        case "pyslurm":
            return _pyslurm(config.cluster)


def _cli(section: ClusterConnectionSection) -> ClusterConnection:
    from mirage.backends.cli import CliCluster
    from mirage.backends.cli_actuator import CliActuator
    from mirage.backends.execution import CommandRunner
    from mirage.backends.links_only import LinkGuard
    from mirage.backends.user_side import identify

    clock, commands = slurm_clock(section), CommandRunner(command_environment(section), section.timeout)
    actuator = CliActuator(commands, own_user())

    def identify_job(job_id: JobId, _: str) -> JobIdentity:
        return identify(commands, job_id)

    guard = LinkGuard(CliCluster(commands, clock, own_user()), actuator, identify_job)
    lore = _lore(section, commands, clock)
    return ClusterConnection(guard, guard, actuator, clock, lore, own_user(), identify=identify_job)


def _lore(section: ClusterConnectionSection, commands: CommandRunner, clock: CorrectedClock) -> ClusterInfo:
    from mirage.backends.cli import CliLinkAccounting, past_jobs
    from mirage.backends.cluster_queries import CliNodeSharing, cli_cluster_name, cli_controller_time
    from mirage.backends.owner_limits import CliStandings

    standings = CliStandings(commands, clock)
    return ClusterInfo(
        history=partial(past_jobs, commands),
        links=CliLinkAccounting(commands),
        standings=standings,
        sharing=CliNodeSharing(commands),
        refresh=standings.refresh,
        hides_jobs=standings.hides_jobs,
        name=partial(cli_cluster_name, commands),
        clock=ClockCheck(clock, partial(cli_controller_time, commands)),
        description=partial(described_by_slurm, section.slurm_conf, commands),
        copied=partial(copied_from_slurm, section.slurm_conf, commands),
    )


def _rest(section: ClusterConnectionSection) -> ClusterConnection:
    from mirage.backends.cluster_queries import RestNodeSharing, rest_cluster_name, rest_controller_time
    from mirage.backends.links_only import LinkGuard
    from mirage.backends.rest import RestCluster, RestConnection, RestVersion
    from mirage.backends.restactuator import OwnToken, RestActuator
    from mirage.backends.restclient import Credentials, RestAddress, RestClient

    if not section.rest.url:
        raise ConfigError("cluster.rest.url", "the backend rest needs it, such as http://127.0.0.1:6820")
    clock, version = slurm_clock(section), RestVersion()
    address = RestAddress.parse(section.rest.url, section.rest.server_user)
    credentials = Credentials(section.rest.user or own_user(), section.rest.token_file)
    client = RestClient(address, credentials, section.timeout)
    cluster = RestCluster(client, clock, version, credentials.user)
    actuator = RestActuator(address, OwnToken(credentials), clock, version, section.timeout)
    # Not every version of slurmrestd shows fair shares, limits and the configuration: they are not known.
    guard = LinkGuard(cluster, actuator, actuator.identify)
    rest = RestConnection(client, version)
    check = ClockCheck(clock, partial(rest_controller_time, rest))
    lore = ClusterInfo(
        history=cluster.past_jobs,
        links=cluster,
        sharing=RestNodeSharing(rest),
        name=partial(rest_cluster_name, rest),
        clock=check,
    )
    return ClusterConnection(
        guard,
        guard,
        cluster,
        clock,
        lore,
        credentials.user,
        check_request=actuator.check,
        identify=lambda job_id, _: actuator.identify(job_id, credentials.user),
    )


def _pyslurm(section: ClusterConnectionSection) -> ClusterConnection:
    from mirage.backends.cli_actuator import CliActuator
    from mirage.backends.cluster_queries import CliVisibility
    from mirage.backends.execution import CommandRunner
    from mirage.backends.libslurm import Libslurm, LibslurmActuator, LibslurmCluster
    from mirage.backends.links_only import LinkGuard
    from mirage.backends.user_side import identify

    if section.slurm_conf:
        os.environ["SLURM_CONF"] = section.slurm_conf  # libslurm knows no other way
    clock, libslurm, user = slurm_clock(section), Libslurm.load(), own_user()
    commands = CommandRunner(command_environment(section), section.timeout)
    actuator = LibslurmActuator(libslurm, user, clock)
    lore = _lore(section, commands, clock)
    cluster = LibslurmCluster(libslurm, clock, user, CliVisibility(commands, user))
    guard = LinkGuard(cluster, actuator, actuator.identify)
    return ClusterConnection(
        guard,
        guard,
        CliActuator(commands, user),
        clock,
        lore,
        user,
        identify=lambda job_id, _: identify(commands, job_id),  # of other users' jobs, too, which libslurm is not
    )
