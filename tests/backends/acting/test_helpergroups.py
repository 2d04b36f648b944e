"""Control groups of helpers: what a helper starts ends with it, wherever it hides."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirage.backends.sudo import Helper, HelperGroups, SudoActuator, own_group
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.job import JobId

if TYPE_CHECKING:
    from collections.abc import Iterator

SOMEBODY = next(person.pw_name for person in pwd.getpwall() if person.pw_uid != 0)
ANSWER = """echo '{"verdict":"DONE","job_id":42,"reason":"","text":"","files":[]}'"""
ESCAPE = "setsid sh -c 'trap \"\" TERM HUP INT; echo $$ >{0}/escaped; exec sleep 600' >/dev/null 2>&1 </dev/null &"


@pytest.fixture
def base() -> Iterator[Path]:
    own = own_group()
    if own is None or not os.access(own, os.W_OK):
        pytest.skip("no control group of version 2 that this process may write to")
    base = own / f"mirage-test-{os.getpid()}"
    base.mkdir()
    if not (base / "cgroup.kill").exists():
        base.rmdir()
        pytest.skip("this kernel cannot kill a control group (Linux 5.14)")
    yield base
    deadline = time.monotonic() + 30
    while any(path.is_dir() for path in base.iterdir()) and time.monotonic() < deadline:
        for path in base.glob("helper-*"):
            with contextlib.suppress(OSError):
                path.rmdir()
        time.sleep(0.1)
    base.rmdir()


def helper(tmp_path: Path, *lines: str, base: Path | None, answer: float = 60.0) -> SudoActuator:
    program = tmp_path / "sudo"
    program.write_text("\n".join(("#!/bin/sh", 'echo "mirage-act 1"', ESCAPE.format(tmp_path), *lines)) + "\n")
    program.chmod(0o755)
    groups = HelperGroups(base) if base else None
    return SudoActuator(Helper("/opt/mirage-act", sudo=str(program), answer=answer), groups)


def waits_for(file: Path) -> str:
    return f"while [ ! -s {file} ]; do sleep 0.02; done"


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def escaped(tmp_path: Path) -> int:
    return int((tmp_path / "escaped").read_text())


def test_group_of_a_helper_ends_what_left_its_session(tmp_path: Path, base: Path) -> None:
    actuator = helper(tmp_path, "cat >/dev/null", waits_for(tmp_path / "escaped"), ANSWER, base=base)
    actuator.cancel(JobId(1), SOMEBODY)
    assert not is_alive(escaped(tmp_path))
    assert [path for path in base.iterdir() if path.is_dir()] == [], "and its group is gone"


def test_group_of_a_helper_that_hangs_is_ended(tmp_path: Path, base: Path) -> None:
    actuator = helper(tmp_path, waits_for(tmp_path / "escaped"), "exec sleep 600", base=base, answer=3.0)
    with pytest.raises(ClusterUnavailable):
        actuator.cancel(JobId(1), SOMEBODY)
    deadline = time.monotonic() + 30
    while is_alive(escaped(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(escaped(tmp_path))


def test_group_that_cannot_be_made_runs_no_helper(tmp_path: Path) -> None:
    actuator = helper(tmp_path, ANSWER, base=tmp_path / "nowhere")
    with pytest.raises(NotPermitted, match="no control group"):
        actuator.cancel(JobId(1), SOMEBODY)
    assert not (tmp_path / "escaped").exists()


def test_groups_are_made_below_units_alone(tmp_path: Path) -> None:
    """Not in the session of an administrator who runs the daemon manually: its processes would be moved."""
    session = tmp_path / "session-3.scope"
    session.mkdir()
    (session / "cgroup.procs").write_text("")
    assert HelperGroups.delegated(session) is None
    assert HelperGroups.delegated(None) is None
    assert list(session.iterdir()) == [session / "cgroup.procs"]


@pytest.mark.parametrize("name", ["mirage.service", "mirage.service/daemon"])
def test_groups_of_a_unit_hold_the_daemon_apart(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(parents=True)
    groups = HelperGroups.delegated(tmp_path / name)
    assert groups is not None
    assert groups.base == tmp_path / "mirage.service"
    assert (groups.base / "daemon" / "cgroup.procs").read_text() == "0"


def test_own_group_is_found_in_both_layouts(tmp_path: Path) -> None:
    listing = tmp_path / "cgroup"
    listing.write_text("4:memory:/x\n0::/system.slice/mirage.service\n")
    for root in (tmp_path / "unified", tmp_path):  # the first is found as long as the second is not there
        group = root / "system.slice" / "mirage.service"
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text("")
        assert own_group(tmp_path, listing) == group
    assert own_group(tmp_path / "nowhere", listing) is None
    assert own_group(tmp_path, tmp_path / "missing") is None
