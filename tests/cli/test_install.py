"""``mirage install``: what it writes, what it leaves alone, and where it writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CRONTAB = """#!/bin/sh
echo "$*" >>'{folder}/crontab.calls'
[ -e '{folder}/forbidden' ] && {{ echo "You (me) are not allowed to use this program (crontab)" >&2; exit 1; }}
case "$1" in
-l) [ -e '{folder}/table' ] || {{ echo "no crontab for me" >&2; exit 1; }}; cat '{folder}/table' ;;
-) cat >'{folder}/table' ;;
esac
"""
RECORDS = "#!/bin/sh\necho \"$@\" >>'{folder}/{name}.calls'\n[ ! -e '{folder}/{name}.fails' ]\n"
OTHERS = b"# mine \xff\nMAILTO=me\n\n5 4 * * * date +\\%s   # no end of line"


@dataclass
class Home:
    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        self._program("crontab", CRONTAB)
        for name in ("systemctl", "sbatch"):
            self._program(name, RECORDS)

    def _program(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(text.format(folder=self.folder, name=name))
        file.chmod(0o755)

    def mirage(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIRAGE_", "XDG_"))}
        environment = kept | {
            "HOME": str(self.folder),
            "PATH": f"{self.folder}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "STATE_DIRECTORY": str(self.folder / "state" / "mirage"),
            "RUNTIME_DIRECTORY": str(self.folder / "state" / "mirage"),  # not the machine's, where root runs this
        }
        return subprocess.run(
            [sys.executable, "-m", "mirage", *words],
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def lines(self) -> list[str]:
        return self.table.read_bytes().decode(errors="surrogateescape").splitlines()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_the_entry_is_added_once_and_removed_whole(home: Home) -> None:
    """The first call fails here, as there is no Slurm: the entry stays, and that is reported."""
    home.table.write_bytes(OTHERS)
    for every in ("10m", "5m"):
        assert home.mirage("install", "cron", "--yes", f"--every={every}").returncode == 1
        (entry,) = [line for line in home.lines if "mirage" in line and not line.startswith("#")]
        assert home.table.read_bytes().startswith(OTHERS + b"\n")
        assert entry.startswith(f"{os.getuid() % int(every[:-1])}-59/{every[:-1]} * * * * ")
        assert f"cycle --every={every}" in entry
    assert home.mirage("uninstall", "cron", "--yes").returncode == 0
    assert home.table.read_bytes() == OTHERS + b"\n"
    assert home.mirage("uninstall", "cron", "--yes").returncode == 0


def test_the_entry_names_what_slurm_needs_and_no_secret(home: Home) -> None:
    given = {
        "SLURM_CONF": "/a path/100%/slurm.conf",
        "MIRAGE_CLUSTER__CLOCK": "/clock.json",
        "MIRAGE_STORE__URL": "postgresql://me:secret@db/mirage",
        "MIRAGE_TOKEN": "secret",
    }
    done = home.mirage("install", "cron", "--yes", **given)
    text = home.table.read_text()
    assert "secret" not in text
    assert "'SLURM_CONF=/a path/100\\%/slurm.conf'" in text
    assert "MIRAGE_CLUSTER__CLOCK=/clock.json" in text
    assert f"PATH={home.folder}/bin:/usr/bin:/bin" in text
    assert "MIRAGE_STORE__URL" in done.stderr


@pytest.mark.parametrize("every", ["0s", "7m", "90s", "2h", "x", "-5m", "10"])
def test_an_interval_that_cron_does_not_have_is_rejected(home: Home, every: str) -> None:
    done = home.mirage("install", "cron", "--yes", f"--every={every}")
    assert (done.returncode, home.table.exists()) == (2, False)
    assert "--every" in done.stderr


def test_nothing_is_written_without_an_answer(home: Home) -> None:
    for words in (("cron",), ("user-unit",), ("path",)):
        done = home.mirage("install", *words)
        assert done.returncode == 2
        assert "--yes" in done.stderr
    assert not home.table.exists()
    assert not (home.folder / ".config").exists()
    assert not (home.folder / ".local").exists()


@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_a_crontab_that_cannot_be_read_is_not_replaced(home: Home, action: str) -> None:
    home.table.write_bytes(OTHERS)
    (home.folder / "forbidden").touch()
    done = home.mirage(action, "cron", "--yes")
    assert done.returncode == 1
    assert "not allowed" in done.stderr
    assert home.table.read_bytes() == OTHERS


def test_an_entry_without_its_end_costs_no_other_line(home: Home) -> None:
    assert home.mirage("install", "cron", "--yes").returncode == 1
    broken = home.table.read_text().replace("# mirage: end\n", "1 1 * * * precious\n")
    home.table.write_text(broken)
    for action in ("install", "uninstall"):
        done = home.mirage(action, "cron", "--yes")
        assert done.returncode == 1
        assert home.table.read_text() == broken


@pytest.mark.parametrize("variables", [{"SLURM_CONF": "/x\ny"}, {"SLURM_CONF": "/" + "x" * 1_000}])
def test_a_line_that_cron_would_cut_is_not_written(home: Home, variables: dict[str, str]) -> None:
    assert home.mirage("install", "cron", "--yes", **variables).returncode == 1
    assert not home.table.exists()


def test_without_sbatch_nothing_is_written(home: Home) -> None:
    (home.folder / "bin" / "sbatch").unlink()
    done = home.mirage("install", "cron", "--yes", PATH=f"{home.folder}/bin:/nonexistent")
    assert done.returncode == 1
    assert "sbatch" in done.stderr
    assert not home.table.exists()


def test_no_command_starts_a_daemon_in_the_directory_of_another_account(home: Home) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a file away needs root")
    state = home.folder / "state" / "mirage"
    state.mkdir(parents=True, mode=0o700)
    for own in (True, False):
        (state / "cycle.json").write_text(json.dumps({"at": time.time(), "every": 600, "daily": 0}))
        if not own:
            (state / "cycle.log").unlink()
            os.chown(state / "cycle.json", 1, 1)
        home.mirage("chains", RUNTIME_DIRECTORY=str(state))
        assert (state / "cycle.log").exists() is own


def test_the_unit_starts_this_mirage(home: Home) -> None:
    file = home.folder / ".config" / "systemd" / "user" / "mirage.service"
    assert home.mirage("install", "user-unit", "--yes", SLURM_CONF="/100%/slurm.conf").returncode == 0
    lines = file.read_text().splitlines()
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    program, *words = start.removeprefix("ExecStart=").split()
    assert os.access(program, os.X_OK)
    assert words[-1] == "daemon"
    assert 'Environment="SLURM_CONF=/100%%/slurm.conf"' in lines
    calls = (home.folder / "systemctl.calls").read_text()
    assert calls.splitlines() == ["--user daemon-reload", "--user enable --now mirage.service"]
    assert home.mirage("uninstall", "user-unit", "--yes").returncode == 0
    assert not file.exists()


def test_a_systemd_that_does_not_answer_is_reported(home: Home) -> None:
    (home.folder / "systemctl.fails").touch()
    done = home.mirage("install", "user-unit", "--yes")
    assert done.returncode == 1
    assert "mirage install cron" in done.stderr


def test_links_are_made_and_no_file_is_replaced(home: Home) -> None:
    link = home.folder / ".local" / "bin" / "mirage"
    done = home.mirage("install", "path", "--yes")
    assert (done.returncode, link.is_symlink()) == (0, True)
    assert ".local/bin is not in PATH" in done.stdout
    assert home.mirage("install", "path", "--yes").returncode == 0
    link.unlink()
    link.write_text("precious")
    assert home.mirage("install", "path", "--yes").returncode == 1
    assert home.mirage("uninstall", "path", "--yes").returncode == 0
    assert link.read_text() == "precious"
    assert [file.name for file in link.parent.iterdir()] == ["mirage"]


def test_a_call_writes_its_log_where_the_state_directory_is_gone(home: Home) -> None:
    """As /var/tmp of a login node that was installed again. There is no Slurm here, so the call fails."""
    home.mirage("install", "cron", "--yes")
    (line,) = [line for line in home.lines if not line.startswith("#")]
    assert ">" not in line
    shutil.rmtree(home.folder / "state")
    done = home.mirage("cycle", "--every=10m", "--log")
    log = home.folder / "state" / "mirage" / "cron.log"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert "event=" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_call_follows_no_link_to_another_file(home: Home) -> None:
    precious = home.folder / "precious"
    precious.write_text("kept")
    (home.folder / "state" / "mirage").mkdir(parents=True)
    (home.folder / "state" / "mirage" / "cron.log").symlink_to(precious)
    done = home.mirage("cycle", "--every=10m", "--log")
    assert done.returncode == 1
    assert "cron.log" in done.stderr
    assert precious.read_text() == "kept"


def test_a_look_says_when_the_next_one_is_due(home: Home) -> None:
    """Also where Slurm does not answer; then it fails, too."""
    done = home.mirage("cycle", "--turn")
    assert (done.returncode, done.stdout.strip().isdecimal()) == (1, True), done.stderr
    assert 5 <= int(done.stdout) <= 600
