"""The side that faces Slurm: one builder a backend."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.world import Lore, World, command_environment, own_user, slurm_clock
from mirage.control.clockcheck import ClockCheck
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.backends.acting.links_only import Identity
    from mirage.backends.execution import Commands
    from mirage.config.model import ClusterSection, Config
    from mirage.control.wallclock import CorrectedClock
    from mirage.domain.job import JobId


def build_world(config: Config) -> World:
    """The cluster that the configuration names, acted on as it says. Raises ``ConfigError``, ``MissingExtra``."""
    from mirage.bootstrap.acting import act_as_configured

    return act_as_configured(config, build_own_world(config))


def build_own_world(config: Config) -> World:
    """The same as the daemon's own user sees it and acts on it. Raises ``ConfigError`` and ``MissingExtra``."""
    match config.cluster.backend:
        case "cli":
            return _cli(config.cluster)
        case "rest":
            return _rest(config.cluster)
        case "simulated":
            from mirage.bootstrap.compiling import compile_simulator
            from mirage.bootstrap.compiling_apart import prepare_cache
            from mirage.bootstrap.simulated import simulated_world

            prepare_cache()
            compile_simulator()  # not when a poll or a command first needs it: the loop would stand still
            return simulated_world(config.cluster.simulated, Path(config.service.state))
        case "pyslurm":
            return _pyslurm(config.cluster)


def _cli(section: ClusterSection) -> World:
    from mirage.backends.acting.link_guard import LinkGuard
    from mirage.backends.acting.own import identify
    from mirage.backends.cli import CliCluster
    from mirage.backends.cli_actuator import CliActuator
    from mirage.backends.execution import Commands

    clock, commands = slurm_clock(section), Commands(command_environment(section), section.timeout)
    actuator = CliActuator(commands, own_user())

    def identify_job(job_id: JobId, _: str) -> Identity:
        return identify(commands, job_id)

    guard = LinkGuard(CliCluster(commands, clock, own_user()), actuator, identify_job)
    lore = _lore(section, commands, clock)
    return World(guard, guard, actuator, clock, lore, own_user(), identify=identify_job)


def _lore(section: ClusterSection, commands: Commands, clock: CorrectedClock) -> Lore:
    from mirage.backends.cli_history import past_jobs
    from mirage.backends.cli_pastlinks import CliLinkAccounting
    from mirage.backends.clustername import cli_cluster_name
    from mirage.backends.controllertime import cli_controller_time
    from mirage.backends.nodesharing import CliNodeSharing
    from mirage.backends.standings_cli import CliStandings
    from mirage.bootstrap.description import copied_from_slurm, described_by_slurm

    standings = CliStandings(commands, clock)
    return Lore(
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


def _rest(section: ClusterSection) -> World:
    from mirage.backends.acting.link_guard import LinkGuard
    from mirage.backends.clustername import rest_cluster_name
    from mirage.backends.controllertime import rest_controller_time
    from mirage.backends.nodesharing import RestNodeSharing
    from mirage.backends.rest import Rest, RestCluster, RestVersion
    from mirage.backends.restactuator import OwnToken, RestActuator
    from mirage.backends.restclient import Address, Credentials, RestClient

    if not section.rest.url:
        raise ConfigError("cluster.rest.url", "the backend rest needs it, such as http://127.0.0.1:6820")
    clock, version = slurm_clock(section), RestVersion()
    address = Address.parse(section.rest.url, section.rest.server_user)
    credentials = Credentials(section.rest.user or own_user(), section.rest.token_file)
    client = RestClient(address, credentials, section.timeout)
    cluster = RestCluster(client, clock, version, credentials.user)
    actuator = RestActuator(address, OwnToken(credentials), clock, version, section.timeout)
    # Not every version of slurmrestd shows fair shares, limits and the configuration: they are not known.
    guard = LinkGuard(cluster, actuator, actuator.identify)
    rest = Rest(client, version)
    check = ClockCheck(clock, partial(rest_controller_time, rest))
    lore = Lore(
        history=cluster.past_jobs,
        links=cluster,
        sharing=RestNodeSharing(rest),
        name=partial(rest_cluster_name, rest),
        clock=check,
    )
    return World(
        guard,
        guard,
        cluster,
        clock,
        lore,
        credentials.user,
        check_request=actuator.check,
        identify=lambda job_id, _: actuator.identify(job_id, credentials.user),
    )


def _pyslurm(section: ClusterSection) -> World:
    from mirage.backends.acting.link_guard import LinkGuard
    from mirage.backends.acting.own import identify
    from mirage.backends.cli_actuator import CliActuator
    from mirage.backends.execution import Commands
    from mirage.backends.libslurm import Libslurm, LibslurmActuator, LibslurmCluster
    from mirage.backends.visibility import CliVisibility

    if section.slurm_conf:
        os.environ["SLURM_CONF"] = section.slurm_conf  # libslurm knows no other way
    clock, libslurm, user = slurm_clock(section), Libslurm.load(), own_user()
    commands = Commands(command_environment(section), section.timeout)
    actuator = LibslurmActuator(libslurm, user, clock)
    lore = _lore(section, commands, clock)
    cluster = LibslurmCluster(libslurm, clock, user, CliVisibility(commands, user))
    guard = LinkGuard(cluster, actuator, actuator.identify)
    return World(
        guard,
        guard,
        CliActuator(commands, user),
        clock,
        lore,
        user,
        identify=lambda job_id, _: identify(commands, job_id),  # of other users' jobs, too, which libslurm is not
    )
