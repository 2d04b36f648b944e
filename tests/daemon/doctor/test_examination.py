"""``mirage doctor`` over fake executables and in bad surroundings."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.backends.execution import CommandRunner
from mirage.cli.main import app
from mirage.config.loading import load_config
from mirage.daemon.doctor import machine
from mirage.daemon.doctor.examination import examine
from mirage.daemon.state_directory import Heartbeat, single_instance

if TYPE_CHECKING:
    from collections.abc import Callable

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "22.05.8"

SCRIPT = """#!/bin/sh
case "$(basename "$0") $*" in
  "scontrol --version") cat {assets}/scontrol.version.txt ;;
  "scontrol show config") {config} ;;
  "scontrol -o show partition") cat {assets}/scontrol.partitions-oneline.txt ;;
  sdiag*) echo "sdiag output at Sat Nov 21 15:42:42 2026 ({now})" ;;
  *associations*) cat {assets}/sacctmgr.associations.txt ;;
  sacct*) {sacct} ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, list[dict[str, str]]]]:
    """The findings by check, over a Slurm whose ``config`` and ``sacct`` answer as the test says."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}/usr/bin:/bin")

    def examine(
        config: str = f"cat {ASSETS}/scontrol.config.txt",
        sacct: str = "true",
        mode: str = "own",
        now: int = 0,
        more: str = "",
    ):
        text = SCRIPT.format(assets=ASSETS, config=config, sacct=sacct, now=now or int(time.time()))
        for name in ("squeue", "sinfo", "sbatch", "scancel", "scontrol", "sacct", "sacctmgr", "sdiag"):
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        file = tmp_path / "mirage.toml"
        file.write_text(
            f'[service]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}"\n[acting]\nmode = "{mode}"\n{more}'
        )
        result = CliRunner().invoke(app, ["doctor", "--json", "--config", str(file)], catch_exceptions=False)
        findings = json.loads(result.stdout)["findings"]
        assert (result.exit_code == 1) == any(f["level"] == "fail" for f in findings)
        by_check: dict[str, list[dict[str, str]]] = {}
        for finding in findings:
            by_check.setdefault(finding["check"], []).append(finding)
        return by_check

    return examine


def test_a_slurm_conf_that_cannot_be_simulated_is_told(examined, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nNodeName=n1\nPartitionName=p Nodes=n1 Default=YES\n")
    none = 'echo "You are not running a supported accounting_storage plugin" >&2; exit 1'
    named = f'[cluster]\nslurm_conf = "{tmp_path}/slurm.conf"\n'
    assert examined(sacct=none, more=named).get("description") is None
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nNodeName=n1\nno pair\n")
    (found,) = examined(sacct=none, more=named)["description"]
    assert found["level"] == "warn"
    assert "slurm.conf:3" in found["found"]
    other = f'{named}[predictors.lookahead]\ncluster = "demo"\n'
    assert "description" not in examined(sacct=none, more=other)


def test_predictor_that_stops_the_start_is_found(examined) -> None:
    """A configuration alone does not show it: what a model was trained on is compared with what Slurm says."""
    assert [each["level"] for each in examined()["predictors"]] == ["ok"]
    (found,) = examined(more='[loop]\npredictor = "xgboost:/nowhere"\n')["predictors"]
    assert (found["level"], "loop.predictor" in found["found"]) == ("fail", True)


def test_question_that_fails_takes_no_other_along(tmp_path: Path) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(f'[service]\nstate = "{tmp_path}/state"\nruntime = "{tmp_path}"\n')
    config = load_config(file).config
    broken = config.model_copy(update={"api": config.api.model_copy(update={"enabled": True, "listen": 7})})
    found = list(examine(broken))
    faults = [each for each in found if "TypeError" in each.found]
    assert [(each.check, each.level) for each in faults] == [("network address", "fail"), ("start", "fail")]
    assert found[-1] not in faults


@pytest.mark.parametrize(
    ("more", "word"),
    [('[api]\nlisten = "0.0.0.0:32300"\n', "certificate"), ('[api]\npolicy = "/nowhere/policy.toml"\n', "policy")],
)
def test_what_keeps_the_daemon_from_starting_is_found(examined, more: str, word: str) -> None:
    (found,) = examined(more=more)["start"]
    assert (found["level"], word in found["found"]) == ("fail", True)


def test_every_part_is_looked_at(examined) -> None:
    found = examined()
    expected = {
        "state",
        "predictors",
        "daemon",
        "interface",
        "commands",
        "controller",
        "versions",
        "age",
        "steering",
        "backfill",
    }
    expected |= {
        "accounting",
        "memory",
        "privacy",
        "rate limit",
        "partitions",
        "clock",
        "history",
        "cluster",
        "acting",
        "settle",
    }
    assert expected <= set(found)
    assert found["controller"][0]["level"] == "ok"


def test_every_complaint_says_what_follows_and_what_to_do(examined) -> None:
    for findings in examined(mode="sudo", sacct="exit 1").values():
        for finding in findings:
            assert finding["level"] == "ok" or (finding["follows"] and finding["todo"]), finding


def test_a_silent_controller_is_a_failure_and_the_rest_is_still_said(examined) -> None:
    found = examined(config="echo 'Unable to contact slurm controller' >&2; exit 1")
    assert found["controller"][0]["level"] == "fail"
    assert "Unable to contact slurm controller" in found["controller"][0]["found"]
    assert "acting" in found


def test_a_silent_accounting_is_a_warning(examined) -> None:
    assert examined(sacct="echo 'Connection refused' >&2; exit 1")["history"][0]["level"] == "warn"


def test_a_clock_that_is_off_is_measured(examined) -> None:
    (clock,) = examined(now=int(time.time()) - 1_000)["clock"]
    assert clock["level"] == "fail"
    assert "ahead of" in clock["found"]


def test_clock_off_by_slurms_time_is_measured_in_both() -> None:
    found = machine.check_clock(1_700_000_000, 1_700_007_200, 60)
    assert str(found.level) == "warn"
    assert "120 s ahead of the controller's, 7200 s of Slurm's time" in found.found


def test_a_missing_command_is_named(examined, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    (commands,) = examined()["commands"]
    assert commands["level"] == "fail"
    assert "squeue" in commands["found"]


def test_a_configuration_that_cannot_work_is_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text("[loop]\ninterval = -1\n")
    result = CliRunner().invoke(app, ["doctor", "--config", str(file)])
    assert result.exit_code == 1
    assert "loop.interval" in str(result.exception)


def test_a_state_folder_open_to_others_is_a_warning(tmp_path: Path) -> None:
    for mode, level in ((0o700, "ok"), (0o755, "warn"), (0o770, "warn")):
        tmp_path.chmod(mode)
        assert [str(f.level) for f in machine.check_state(tmp_path)] == [level]
    assert [str(f.level) for f in machine.check_state(tmp_path / "new" / "one")] == ["ok"]


@pytest.mark.parametrize(("mode", "levels"), [(0o777, ["ok", "fail"]), (0o1777, ["ok"]), (0o755, ["ok"])])
def test_state_folder_that_others_can_replace_is_a_failure(tmp_path: Path, mode: int, levels: list[str]) -> None:
    above = tmp_path / "above"
    folder = above / "state"
    folder.mkdir(mode=0o700, parents=True)
    above.chmod(mode)
    assert [str(f.level) for f in machine.check_state(folder)] == levels


@pytest.mark.parametrize("changeable", ["", "mirage.toml", "conf.d", "conf.d/x.toml"])
def test_configuration_that_others_can_change_is_a_failure(tmp_path: Path, changeable: str) -> None:
    place = tmp_path / "etc"
    (place / "conf.d").mkdir(parents=True)
    files = [place / "mirage.toml", place / "conf.d" / "x.toml"]
    for each in (*files, place / "conf.d", place):
        each.touch()
        each.chmod(0o755 if each.is_dir() else 0o644)
    if changeable:
        (place / changeable).chmod(0o777)
    found = list(machine.check_configuration(files, os.geteuid()))
    assert {each.level.value for each in found} == ({"fail"} if changeable else set())
    assert all(changeable.partition("/")[0] in each.found for each in found)
    if not changeable and os.geteuid() == 0:
        os.chown(files[0], 54_321, -1)
        assert [each.level for each in machine.check_configuration(files, 0)] == ["fail"]
        assert not list(machine.check_configuration(files, 54_321))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_state_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert [str(f.level) for f in machine.check_state(tmp_path)] == ["fail"]
    assert [str(f.level) for f in machine.check_state(tmp_path / "x")] == ["fail"]


@pytest.mark.parametrize(("free_mb", "level"), [(0, "fail"), (100, "warn"), (100_000, "ok")])
def test_doctor_reports_a_full_state_disk(tmp_path: Path, free_mb: int, level: str) -> None:
    assert str(machine.check_free_space(tmp_path, free_mb).level) == level


def test_doctor_reports_an_older_key_or_policy_in_force(tmp_path: Path) -> None:
    problem = "api.policy: /etc/mirage/policy.toml cannot be read: Permission denied"
    with single_instance(tmp_path / "daemon.lock"):
        Heartbeat(tmp_path / "heartbeat").beat(7, "held", outdated=problem)
        (found,) = machine.check_access(tmp_path)
        assert (str(found.level), found.found) == ("fail", problem)
        Heartbeat(tmp_path / "heartbeat").beat(8, "held")
        assert not [*machine.check_access(tmp_path)]


def test_a_daemon_whose_state_folder_is_gone_is_named(tmp_path: Path) -> None:
    from mirage.config.model import ApiSection, Config, ServiceSection

    path = str(tmp_path / "api.sock")
    config = Config(service=ServiceSection(state=str(tmp_path / "gone")), api=ApiSection(socket=path))
    assert machine.check_daemon(config).found == "none runs"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(path)
        daemon.listen()
        found = machine.check_daemon(config)
    assert str(found.level) == "fail"
    assert path in found.found


def test_a_daemon_is_found_by_its_lock_and_heartbeat(tmp_path: Path) -> None:
    from mirage.config.model import Config, ServiceSection

    config = Config(service=ServiceSection(state=str(tmp_path)))
    assert machine.check_daemon(config).found == "none runs"
    with single_instance(tmp_path / "daemon.lock"):
        assert "not completed a cycle yet" in machine.check_daemon(config).found
        Heartbeat(tmp_path / "heartbeat").beat(7, "held everything")
        assert "held everything" in machine.check_daemon(config).found
        Heartbeat(tmp_path / "heartbeat").beat(8, "hold: disk full", failed=22)
        failed = machine.check_daemon(config)
        assert str(failed.level) == "fail"
        assert "22" in failed.found
        Heartbeat(tmp_path / "heartbeat").beat(9, "held", stuck=3)
        stuck = machine.check_daemon(config)
        assert str(stuck.level) == "warn"
        assert "3 predictor threads" in stuck.found
        late = {"pid": 1, "time": int(time.time()) - 300, "cycles": 9, "sentence": "held", "due_s": 60.0}
        (tmp_path / "heartbeat").write_text(json.dumps(late))
        assert str(machine.check_daemon(config).level) == "fail"
        (tmp_path / "heartbeat").write_text(json.dumps(late | {"due_s": 600.0}))
        assert str(machine.check_daemon(config).level) == "ok"
        (tmp_path / "heartbeat").write_text('{"pid": 1, "time": 5, "cycles": 1, "sentence": "long ago"}')
        assert str(machine.check_daemon(config).level) == "fail"
    assert machine.check_daemon(config).found == "none runs"


def test_a_helper_that_others_can_change_is_a_failure(tmp_path: Path) -> None:
    helper = tmp_path / "mirage-act"
    assert [str(f.level) for f in machine.check_helper(helper)] == ["fail"]
    helper.touch()
    helper.chmod(0o777)
    assert [str(f.level) for f in machine.check_helper(helper)] == ["fail"]
    if os.geteuid() == 0:
        helper.chmod(0o755)
        assert [str(f.level) for f in machine.check_helper(helper)] == ["ok"]


LISTED = """Matching Defaults entries for mirage on vm:
    env_reset, secure_path=/usr/sbin\\:/usr/bin

User mirage may run the following commands on vm:
    {}
"""
"""The output of sudo 1.9."""


@pytest.mark.parametrize(
    ("rule", "status", "level"),
    [
        ('(%mirage-users, !root) NOPASSWD: /usr/bin/mirage-act ""', 0, "ok"),
        ("(root) NOPASSWD: /bin/true\n    (alice, bob) NOPASSWD:\n        /bin/ls, /usr/bin/mirage-act", 0, "ok"),
        ("(ALL : ALL) NOPASSWD: ALL", 0, "warn"),
        ('(ALL, !root) NOPASSWD: /usr/bin/mirage-act ""', 0, "ok"),
        ('(alice, root) NOPASSWD: /usr/bin/mirage-act ""', 0, "warn"),
        ('(%root-users, rooty) NOPASSWD: /usr/bin/mirage-act ""', 0, "ok"),
        ("(ALL) /usr/bin/mirage-act", 0, "fail"),
        ("(ALL) NOPASSWD: /usr/bin/mirage-act.old", 0, "fail"),
        ("(ALL) NOPASSWD: /opt/usr/bin/other", 0, "fail"),
        ("", 1, "fail"),
    ],
)
def test_sudoers_that_lack_the_helper_are_a_failure(tmp_path: Path, rule: str, status: int, level: str) -> None:
    (tmp_path / "listed").write_text(LISTED.format(rule))
    sudo = tmp_path / "sudo"
    sudo.write_text(f"#!/bin/sh\n[ \"$*\" = '-n -l' ] || exit 9\ncat {tmp_path}/listed\nexit {status}\n")
    sudo.chmod(0o755)
    commands = CommandRunner({"PATH": f"{tmp_path}:/usr/bin:/bin"}, 30)
    found = machine.check_sudoers(Path("/usr/bin/mirage-act"), commands)
    assert found.level == level


def test_machine_without_sudo_is_a_failure(tmp_path: Path) -> None:
    found = machine.check_sudoers(Path("/usr/bin/mirage-act"), CommandRunner({"PATH": str(tmp_path)}, 30))
    assert found.level == "fail"


@pytest.mark.parametrize(("content", "level"), [("0\n", "warn"), ("1\n", "ok"), ("2\n", "ok"), (None, "warn")])
def test_a_kernel_on_which_users_may_trace_their_helpers_is_said(
    tmp_path: Path, content: str | None, level: str
) -> None:
    scope = tmp_path / "ptrace_scope"
    if content is not None:
        scope.write_text(content)
    assert str(machine.check_tracing(scope).level) == level


def test_tokens_are_counted_and_kept_from_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert [str(f.level) for f in machine.check_tokens(tmp_path)] == ["warn"]
    (tmp_path / "alice.jwt").touch()
    assert [f.found for f in machine.check_tokens(tmp_path)] == ["tokens of alice"]
    tmp_path.chmod(0o755)
    assert [str(f.level) for f in machine.check_tokens(tmp_path)] == ["fail", "ok"]


@pytest.mark.parametrize("flag", ["0", "1"])
def test_a_daemon_that_can_gain_no_privileges_cannot_use_sudo(tmp_path: Path, flag: str) -> None:
    code = (
        f"import ctypes, sys; ctypes.CDLL(None).prctl(38, {flag}, 0, 0, 0); print(1, flush=True); sys.stdin.read()"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        single_instance(tmp_path / "daemon.lock"),
    ):
        process.stdout.readline()
        beat = {"pid": process.pid, "time": 5, "cycles": 1, "sentence": "held"}
        (tmp_path / "heartbeat").write_text(json.dumps(beat))
        found = [str(finding.level) for finding in machine.check_privileges(tmp_path)]
        process.stdin.close()
    expected = ["fail"] if flag == "1" or _no_new_privileges() else []
    assert found == expected
    assert list(machine.check_privileges(tmp_path)) == [], "none runs"


def _no_new_privileges() -> bool:
    """Whether this very process, and so its children, may gain none."""
    return "NoNewPrivs:\t1" in Path("/proc/self/status").read_text()


@pytest.mark.parametrize(("folder", "level"), [("first", "ok"), ("second", "warn")])
def test_a_state_beside_a_home_on_the_network_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, level: str
) -> None:
    monkeypatch.setattr(machine, "SHARED_FOLDERS", (tmp_path / "first", tmp_path / "second"))
    monkeypatch.setattr(machine, "remark_on", lambda state: f"the state is in {state}")
    (finding,) = machine.check_place(tmp_path / folder / "mirage-alice")
    assert str(finding.level) == level
    monkeypatch.undo()
    assert list(machine.check_place(tmp_path)) == []
