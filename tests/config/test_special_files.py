"""Devices, FIFOs and directories in place of configured files: read without delay, rejected with a reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mirage.api.access.tokens import Claims, SlurmTokens
from mirage.control.clocks import read_clock
from mirage.domain.errors import ConfigError
from mirage.notifications.channels import Webhook
from mirage.simulator.configuration.slurmconf import inspect_slurm_conf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def include(file: Path) -> None:
    conf = file.parent / "slurm.conf"
    conf.write_text(f"ClusterName=site\nInclude {file}\n")
    inspect_slurm_conf(conf)


def key(file: Path) -> None:
    SlurmTokens(file, None, Claims())


def web_keys(file: Path) -> None:
    SlurmTokens(None, file, Claims())


def url_file(file: Path) -> None:
    Webhook(file, ()).check()


READERS = {
    "slurm.conf:2": include,
    "api.jwt.key": key,
    "api.jwt.jwks": web_keys,
    "clock": read_clock,
    "notifications.webhook.url_file": url_file,
}


@pytest.mark.parametrize("kind", ["device", "fifo", "directory", "missing"])
@pytest.mark.parametrize(("where", "read"), READERS.items(), ids=READERS)
def test_file_that_is_not_regular_is_rejected_in_words(
    tmp_path: Path, where: str, read: Callable[[Path], object], kind: str
) -> None:
    file = tmp_path / "clock"
    if kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    with pytest.raises(ConfigError) as caught:
        read(file)
    assert where in caught.value.where
    reason = "No such file" if kind == "missing" else "not a regular file"
    assert reason in caught.value.problem
    assert "\n" not in str(caught.value)
