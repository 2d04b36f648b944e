"""A database belongs to one cluster: a daemon of another one neither decides nor leads."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from mirage.backends.cluster_queries import CheckedCluster, cli_cluster_name
from mirage.backends.execution import CommandRunner
from mirage.bootstrap.identities import ClusterIdentity
from mirage.domain.errors import ClusterUnavailable, ConfigError
from mirage.store.about import change_cluster_name, read_cluster_name
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path


class Asked:
    """A cluster that says its name, or does not answer."""

    def __init__(self, name: str | None) -> None:
        self.name, self.times, self.polls = name, 0, 0

    def ask(self) -> str:
        self.times += 1
        if self.name is None:
            raise ClusterUnavailable("it does not answer")
        return self.name

    def snapshot(self, **asked: object) -> str:
        self.polls += 1
        return "seen"


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path}/mirage.db"
    open_store(made).close()
    return made


def polled(url: str, cluster: Asked, times: int = 1) -> list[str]:
    """Poll it for a daemon on this database; returns why the daemon must not lead."""
    store, reasons = open_store(url), []
    checked = CheckedCluster(cluster, ClusterIdentity(cluster.ask, store.cluster.settle, reasons.append).check)
    try:
        for _ in range(times):
            checked.snapshot()
    finally:
        store.close()
    return reasons


def test_identity_of_the_first_cluster_is_stored(url: str) -> None:
    assert read_cluster_name(url) == ""
    cluster = Asked("alpha")
    assert polled(url, cluster, times=3) == []
    assert (read_cluster_name(url), cluster.times, cluster.polls) == ("alpha", 1, 3)
    assert polled(url, Asked("ALPHA")) == []


def test_identity_of_another_cluster_is_rejected(url: str) -> None:
    polled(url, Asked("alpha"))
    other = Asked("beta")
    with pytest.raises(ConfigError, match=r"'alpha'.*'beta'.*mirage db cluster beta"):
        polled(url, other)
    assert (other.polls, read_cluster_name(url)) == (0, "alpha")
    change_cluster_name(url, "beta")
    assert polled(url, Asked("beta")) == []


def test_identity_of_a_silent_cluster_is_asked_again(url: str) -> None:
    cluster = Asked(None)
    with pytest.raises(ClusterUnavailable):
        polled(url, cluster)
    assert (cluster.polls, read_cluster_name(url)) == (0, "")


def test_identity_that_is_not_told_is_not_compared(url: str) -> None:
    polled(url, Asked("alpha"))
    assert polled(url, Asked("")) == []
    assert read_cluster_name(url) == "alpha"


@pytest.mark.parametrize(
    ("printed", "name"), [("ClusterName = alpha", "alpha"), ("ClusterName = (null)", ""), ("SlurmUser = x", "")]
)
def test_cluster_name_is_read_from_slurms_settings(tmp_path: Path, printed: str, name: str) -> None:
    command = tmp_path / "scontrol"
    command.write_text(f"#!/bin/sh\necho '{printed}'\n")
    command.chmod(0o755)
    assert cli_cluster_name(CommandRunner({"PATH": str(tmp_path)})) == name
    command.write_text("#!/bin/sh\necho no contact >&2\nexit 1\n")
    with pytest.raises(ClusterUnavailable, match="no contact"):
        cli_cluster_name(CommandRunner({"PATH": str(tmp_path)}))
    shutil.rmtree(tmp_path)
    assert cli_cluster_name(CommandRunner({"PATH": str(tmp_path)})) == ""
