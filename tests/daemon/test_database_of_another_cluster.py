"""A daemon whose database belongs to another cluster decides nothing there and does not lead."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from daemons import wait_until
from sites import MAIN, running_site

from mirage.bootstrap.cluster import own_user
from mirage.domain.link import LinkState
from mirage.store.about import read_cluster_name

if TYPE_CHECKING:
    from pathlib import Path

    from sites import Site

CONFIG = ("scontrol", "config")


def end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(120) == 0


def one_cycle(site: Site) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, "daemon", "--once", "--config", str(site.config)]
    environment = site.slurm.environment(own_user())
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_daemon_of_another_cluster_neither_decides_nor_leads(tmp_path: Path) -> None:
    with running_site(tmp_path) as site:
        site.slurm.told[CONFIG] = "ClusterName = alpha\n"
        site.add_chain(links=99)
        with site.daemon() as daemon:
            wait_until(lambda: site.record().live, "the first link")
            end(daemon)
        url = f"sqlite:///{tmp_path}/state/mirage.db"
        assert read_cluster_name(url) == "alpha"
        stored = site.record()
        site.slurm.told[CONFIG] = "ClusterName = beta\n"
        tags = site.tags()
        done = one_cycle(site)
        assert done.returncode == 1
        assert "belongs to cluster 'alpha', but the cluster here is 'beta'" in done.stderr
        with site.daemon() as daemon:
            shown: list[str] = []
            wait_until(lambda: "stands by" in _status(site, shown), "standing by")
            assert "mirage db cluster beta" in shown[-1]
            end(daemon)
        assert (site.record(), site.tags()) == (stored, tags)
        assert not [link for link in site.record().links if link.state is LinkState.LOST]
        renamed = site.mirage("db", "cluster", "beta", "--config", str(site.config))
        assert renamed.stdout.endswith("cluster beta\n"), renamed.stderr
        assert one_cycle(site).returncode == 0
        assert read_cluster_name(url) == "beta"


def _status(site: Site, shown: list[str]) -> str:
    """The answer, or why there is none, also added to ``shown``."""
    try:
        shown.append(str(site.client.get("/chains")))
    except Exception as error:  # the daemon is about to start
        shown.append(str(error))
    return shown[-1]
