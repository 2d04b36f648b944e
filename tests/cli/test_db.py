"""``mirage db`` as an administrator types it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from anyone import ANYONE, for_all_users
from typer.testing import CliRunner

from mirage.cli.main import app
from mirage.daemon.state_directory import single_instance
from mirage.domain.errors import ConfigError, MirageError
from mirage.store.access import StoredToken
from mirage.store.opening import open_store
from mirage.store.restoration import Restoration, read_restoration
from mirage.store.schema import no_schema

ROOT = Path(__file__).resolve().parents[2]
FIRST = ROOT / "tests" / "store" / "frozen" / "0001.sql"
WANTED = no_schema().wanted


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration; the database is in ``state`` next to it, and does not exist yet."""
    config = tmp_path / "mirage.toml"
    config.write_text(f'[service]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}/run"\n')
    return config


def old_store(state: Path) -> Path:
    state.mkdir(mode=0o700)
    with closing(sqlite3.connect(state / "mirage.db")) as connection:
        connection.executescript(FIRST.read_text())
    return state / "mirage.db"


def db(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["db", *arguments], catch_exceptions=True)
    if isinstance(result.exception, MirageError):
        raise result.exception
    return result.exit_code, result.stdout


def test_before_during_and_after(file: Path, tmp_path: Path) -> None:
    code, said = db("status", "--config", str(file))
    assert (code, "does not exist yet" in said) == (0, True)
    assert not (tmp_path / "state").exists(), "to look makes nothing"
    store = old_store(tmp_path / "state")
    code, said = db("status", "--config", str(file), "--json")
    assert code == 1
    assert json.loads(said) == {"store": str(store), "schema": "0001", "wanted": WANTED, "state": "older"}
    code, said = db("upgrade", "--config", str(file), "--json")
    done = json.loads(said)
    assert (code, done["before"], done["after"]) == (0, "0001", WANTED)
    assert Path(done["backup"]).exists()
    assert db("status", "--config", str(file)) == (0, f"{store}: schema {WANTED}, up to date\n")
    assert db("upgrade", "--config", str(file)) == (0, f"{store}: schema {WANTED}, nothing to do\n")


def test_nobody_upgrades_under_a_running_daemon(file: Path, tmp_path: Path) -> None:
    old_store(tmp_path / "state")
    with single_instance(tmp_path / "state" / "daemon.lock"), pytest.raises(MirageError, match="runs already"):
        db("upgrade", "--config", str(file))
    assert db("status", "--config", str(file))[0] == 1


def test_a_copy_on_request_is_a_store(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to back up"):
        db("backup", "--config", str(file))
    old_store(tmp_path / "state")
    running = open_store(f"sqlite:///{tmp_path}/state/mirage.db")
    code, said = db("backup", "--config", str(file), "--to", str(tmp_path / "copy.db"))
    assert (code, said) == (0, f"{tmp_path}/copy.db\n")
    copied = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert copied.chains.load() == running.chains.load() != ()
    running.close()
    copied.close()
    with pytest.raises(MirageError, match="is there already"):
        db("backup", "--config", str(file), "--to", str(tmp_path / "copy.db"))


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
@pytest.mark.parametrize("command", [["db", "status"], ["db", "backup"], ["db", "cluster"], ["doctor"]])
def test_state_directory_of_another_user_is_named(file: Path, tmp_path: Path, command: list[str]) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    old_store(secret / "state")
    file.write_text(file.read_text().replace(f"{tmp_path}/state", f"{secret}/state"))
    argv = [*ANYONE, *command, "--config", str(file)]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=for_all_users(tmp_path), user=65_534
    )
    said = " ".join((done.stdout + done.stderr).split())
    assert (done.returncode, "Traceback" in said) == (1, False)
    assert "Permission denied" in said
    assert f"{secret}/state" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_root_leaves_no_file_that_the_daemon_could_not_use(file: Path, tmp_path: Path) -> None:
    old_store(tmp_path / "state")
    for path in (tmp_path / "state", *(tmp_path / "state").iterdir()):
        os.chown(path, 65_534, 65_534)
    argv, packages = [*ANYONE, "db", "upgrade", "--config", str(file)], for_all_users(tmp_path)
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, env=packages)
    assert ran.returncode == 0, ran.stderr
    assert "backup-0001" in ran.stdout
    assert {path.stat().st_uid for path in (tmp_path / "state").iterdir()} == {65_534}


def test_restored_marks_the_store_and_says_whose_tokens_went(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the database is empty"):
        db("restored", "--config", str(file))
    old_store(tmp_path / "state")
    url = f"sqlite:///{tmp_path}/state/mirage.db"
    store = open_store(url)
    store.tokens.add(StoredToken("one", "alice", "", "read", b"x" * 32, 1, 0))
    store.close()
    with single_instance(tmp_path / "state" / "daemon.lock"), pytest.raises(MirageError, match="runs already"):
        db("restored", "--config", str(file))
    with pytest.raises(ConfigError, match="--since"):
        db("restored", "--config", str(file), "--since", "yesterday")
    code, said = db("restored", "--config", str(file), "--keep-tokens", "--json")
    assert code == 0
    assert json.loads(said)["tokens_revoked"] == 0
    options = ("--since", "1970-01-01T00:00:04", "--pause-all")
    code, said = db("restored", "--config", str(file), *options)
    assert code == 0
    assert said.endswith("ends at 1970-01-01T00:00:04Z; tokens revoked: 1 (alice)\n")
    assert read_restoration(url) == Restoration(4, 0, asks_accounting=False)


@pytest.mark.parametrize("left", ["identity", "heartbeat"])
def test_status_of_a_removed_database_is_a_failure(file: Path, tmp_path: Path, left: str) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / left).touch()
    code, said = db("status", "--config", str(file))
    assert (code, "is missing or empty" in said) == (1, True)
    assert json.loads(db("status", "--config", str(file), "--json")[1])["state"] == "missing"
    with pytest.raises(ConfigError, match="is missing or empty"):
        db("backup", "--config", str(file))


def test_cluster_of_a_database_is_shown_and_changed(file: Path, tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/state/mirage.db").close()
    assert "no cluster name is stored yet" in db("cluster", "--config", str(file))[1]
    assert db("cluster", "new.name", "--config", str(file))[1].endswith("cluster new.name\n")
    assert json.loads(db("cluster", "--config", str(file), "--json")[1])["cluster"] == "new.name"
    with pytest.raises(ConfigError, match="ClusterName"):
        db("cluster", "two words", "--config", str(file))
