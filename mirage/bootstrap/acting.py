"""In whose name the daemon acts: one builder a mode."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.world import command_environment, takes_any
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.backends.acting.orders import Answer
    from mirage.backends.acting.sudo import Helper
    from mirage.bootstrap.world import World
    from mirage.config.model import Config
    from mirage.ports import Actuator

_LOG = logging.getLogger(__name__)

_BY_AGENT, _BY_SUDO = 20.0, 30.0
"""Seconds after which a check of files counts as hanging: an agent may be busy, a helper starts a Python."""
_EVERY_BY_SUDO = 15.0
"""Seconds: each check by sudo is a process, and a line in the log of sudo."""


def act_as_configured(config: Config, own: World) -> World:
    """The world as ``own`` shows it, acted on in users' names. Raises ``ConfigError``."""
    match config.acting.mode:
        case "own":
            return own
        case "agent":
            return _by_agents(config, own)
        case "release":
            return _by_release(config, own)
        case "sudo":
            return _by_sudo(config, own)
        case "token":
            return _by_tokens(config, own)


def _by_owners(own: World, actuator: Actuator) -> World:
    """Slurm reports planned starts only for jobs of the daemon's user; other users' cannot be queried."""
    return replace(own, actuator=actuator, check_request=takes_any)


def _by_agents(config: Config, own: World) -> World:
    from mirage.backends.acting.agent import AgentActuator
    from mirage.backends.acting.files import files_by_order
    from mirage.backends.acting.orderdesk import OrderDesk, Patience
    from mirage.backends.backgroundfiles import CheckLimits

    desk = OrderDesk(_late, Patience(answer=config.acting.timeout))
    files = files_by_order(desk.ask, CheckLimits(timeout=_BY_AGENT))
    return replace(_by_owners(own, AgentActuator(desk)), desk=desk, files=files)


def _late(owner: str, order_id: str, answer: Answer) -> None:
    """Log an agent's answer after the timeout; the next snapshot shows the outcome."""
    verdict = answer.verdict.name.lower()
    _LOG.warning("event=agent_answer_late user=%s order=%s result=%s", owner, order_id, verdict)


def _by_release(config: Config, own: World) -> World:
    from mirage.backends.acting.in_turns import InTurns
    from mirage.backends.acting.operator import OperatorActuator
    from mirage.backends.acting.release import ReleaseCluster
    from mirage.backends.execution import Commands

    operator = OperatorActuator(Commands(command_environment(config.cluster), config.cluster.timeout))
    both = ReleaseCluster(own.cluster, InTurns(operator, "Slurm's controller"))
    return replace(_by_owners(own, both), cluster=both)


def _by_sudo(config: Config, own: World) -> World:
    from mirage.backends.acting.files import files_by_order
    from mirage.backends.acting.helpergroups import HelperGroups, own_group
    from mirage.backends.acting.sudo import SudoActuator, check_person
    from mirage.backends.backgroundfiles import CheckLimits

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
    return replace(made, files=files, check_request=lambda request: check_person(request.user))


def _helper(config: Config) -> Helper:
    from mirage.backends.acting.sudo import Helper

    if not Path(config.acting.helper).is_absolute():
        raise ConfigError("acting.helper", "sudo needs the program's whole path, as sudoers names it")
    return Helper(config.acting.helper, answer=config.acting.timeout)


def _by_tokens(config: Config, own: World) -> World:
    from mirage.backends.acting.in_turns import InTurns
    from mirage.backends.acting.link_guard import LinkGuard
    from mirage.backends.restactuator import RestActuator, TokenDirectory
    from mirage.backends.restclient import Address

    if not config.cluster.rest.url:
        raise ConfigError("cluster.rest.url", "acting mode token needs it, such as http://127.0.0.1:6820")
    if not config.acting.tokens:
        raise ConfigError("acting.tokens", "acting mode token needs the directory of the users' tokens")
    rest, directory = config.cluster.rest, TokenDirectory(Path(config.acting.tokens))
    address = Address.parse(rest.url, rest.server_user)
    actuator = RestActuator(address, directory, own.clock, timeout=config.acting.timeout)
    guard = LinkGuard(own.cluster, actuator, actuator.identify)
    turns = InTurns(guard, f"slurmrestd at {address.text}")
    by_owners = _by_owners(own, turns)
    return replace(by_owners, cluster=guard, check_request=actuator.check, identify=actuator.identify)
