"""A real cluster as the simulator wants it: its slurm.conf, and the accounts and limits that slurmdbd has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable, ConfigError
from mirage.simulator.configuration.slurmconf import (
    ASSOCIATIONS_FILE,
    QOS_FILE,
    USERS_FILE,
    VERSION_FILE,
    inspect_slurm_conf,
)
from mirage.slurm.configtext import FILE, read_settings
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from mirage.backends.execution import Commands
    from mirage.simulator.cluster import ClusterConfig

_ASKED = {
    ASSOCIATIONS_FILE: ("sacctmgr", "--parsable2", "show", "assoc"),
    QOS_FILE: ("sacctmgr", "--parsable2", "show", "qos"),
    USERS_FILE: ("sacctmgr", "--parsable2", "show", "user"),
    VERSION_FILE: ("scontrol", "--version"),
}
"""Commands whose output is read where no file next to slurm.conf has it."""


def described_by_slurm(slurm_conf: str, commands: Commands) -> ClusterConfig:
    """The cluster as ``slurm_conf`` describes it; empty: as the file that the controller names.

    Accounts and limits come from slurmdbd where no dumps of them stand next to the file; without accounting they
    are empty. Raises ``ConfigError`` and ``ClusterUnavailable``.
    """
    path = _conf(slurm_conf, commands)
    return inspect_slurm_conf(path, _told(commands, path)).config


def copied_from_slurm(slurm_conf: str, commands: Commands, folder: Path) -> str:
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


def _conf(slurm_conf: str, commands: Commands) -> Path:
    path = Path(slurm_conf or read_settings(_asked(commands, "scontrol", "show", "config")).get(FILE, ""))
    if not path.is_file():
        raise ConfigError(
            "predictors.lookahead.cluster",
            f"the cluster's slurm.conf is not on this machine ({path}); set a copy or a cluster file",
        )
    return path


def _told(commands: Commands, conf: Path) -> dict[str, str]:
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


def _asked(commands: Commands, *argv: str) -> str:
    answer = commands.run(argv)
    if answer.status:
        raise ClusterUnavailable(f"{argv[0]}: exit {answer.status}: {one_line(answer.said)}")
    return answer.out
