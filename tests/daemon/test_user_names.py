"""A daemon that would take users for others ends, to be started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import wait_until
from sites import MAIN, Site, running_site

from mirage.bootstrap.cluster import own_user
from mirage.daemon.host import UsersOutdated, check_user_files


def test_a_file_that_was_replaced_after_it_was_mounted_is_noticed(tmp_path: Path) -> None:
    """Like a mount of the single file: a file that no directory has."""
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\n")
    check_user_files([passwd, tmp_path / "none"])
    with passwd.open() as held:
        shown = Path(f"/proc/self/fd/{held.fileno()}")
        check_user_files([shown])
        (tmp_path / "new").write_text("bob:x:7:7::/:/bin/sh\n")
        (tmp_path / "new").rename(passwd)
        with pytest.raises(UsersOutdated, match="mounted"):
            check_user_files([shown])
    check_user_files([passwd])


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="mounting takes root")
def test_the_daemon_of_a_container_ends_once_the_machines_users_change(tmp_path: Path) -> None:
    mounted = tmp_path / "passwd"
    shutil.copy("/etc/passwd", mounted)
    with running_site(tmp_path) as site:
        inside = f'mount --bind {mounted} /etc/passwd && exec "$@"'
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh"]
        argv += [sys.executable, "-c", MAIN, "daemon", "--config", str(site.config)]
        environment = os.environ | site.slurm.environment(own_user())
        with subprocess.Popen(argv, env=environment) as daemon:
            try:
                wait_until(lambda: _answers(site), "the daemon")
                (tmp_path / "new").write_text(mounted.read_text() + "erin:x:1099:1099::/:/bin/sh\n")
                (tmp_path / "new").rename(mounted)
                assert daemon.wait(60) == 75
            finally:
                daemon.send_signal(signal.SIGKILL)


def _answers(site: Site) -> bool:
    return site.socket.exists() and site.slurm.count("squeue") > 0
